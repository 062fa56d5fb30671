/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a secret from standard input: from a terminal with a question and unseen, else its first line. */
#ifndef CLI_SECRET_PROMPT_H
#define CLI_SECRET_PROMPT_H

#define ASK_MAX 512 /* with the final 0 */

enum ask { ASK_GOOD, ASK_NOTHING, ASK_TOO_LONG, ASK_FAILED };

/* The caller wipes the text, whatever came of it. A signal that ends us finds the terminal as it was. */
enum ask ask_hidden(const char *question, char text[static ASK_MAX]);

#endif
