/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in a town at every moment. */
#ifndef TESTS_SIM_TOWN_FACTS_H
#define TESTS_SIM_TOWN_FACTS_H

#include "town.h"

/* After everything that a house did: one census for each epoch of an instance, one leader for each term, and
 * epochs that only rise, and no guest that leads. */
void facts_check(struct town *town, int house);
/* Guests have no part in elections. */
void facts_letter(struct town *town, int house, uint8_t kind);
void facts_fail(struct town *town, const char *format, ...) __attribute__((format(printf, 2, 3)));
void facts_free(struct town *town);

#endif
