/* SPDX-License-Identifier: Apache-2.0 */
/* main of the programs that simulate: virtual time may hang, so that a watchdog looks at it. */
#include "support/suite.h"
#include "support/watchdog.h"

int main(void)
{
    watchdog(900, "a simulation");
    return suite_run();
}
