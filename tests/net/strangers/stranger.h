/* SPDX-License-Identifier: Apache-2.0 */
/* Those who have no business here, for tests: what they try, and what they saw, as one line of JSON each.
 * docs/security.md says what they must not get. */
#pragma once

#include "net/strangers/sights.h"

#define PATIENCE_MS 20000 /* for an answer; members give a stranger 5 s */
#define KNOCK_LEN   105   /* NAMESPACE.NONCE.MAC.hearth */
#define HELLO_MAX   4096

/* ---- what they do: `arguments` behind the name; an exit status ---- */

int do_flood(int count, char **arguments); /* HOST PORT N [MODE [KNOCK-FILE]] */
int do_mitm(int count, char **arguments);  /* LISTEN HOST PORT */
int do_tls12(int count, char **arguments); /* HOST PORT [KNOCK-FILE] */
int do_guess(int count, char **arguments); /* HOST PORT KNOCK-FILE: TLS 1.3, heard knock, a proof by chance */
int do_record(int count, char **arguments); /* LISTEN HOST PORT FILE */
int do_knock(int count, char **arguments);  /* SECRET-FILE FILE: a hello as a member would send it */
int do_claim(int count, char **arguments);  /* SECRET-FILE HOST PORT: has the secret, says to be another */

/* A hello with a knock of the right form, made without the secret: its length. */
size_t hello_forge(uint8_t target[static HELLO_MAX]);
/* The knock in a hello; false: there is none. */
bool knock_find(const uint8_t *bytes, size_t len, char knock[static KNOCK_LEN + 1]);
