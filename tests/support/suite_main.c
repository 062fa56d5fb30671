/* SPDX-License-Identifier: Apache-2.0 */
/* main of the test programs that have none of their own: the linker takes it from the library only then. */
#include "support/suite.h"

int main(void)
{
    return suite_run();
}
