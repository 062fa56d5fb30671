/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads that stand in somebody else's memory. */
#include "transport/link.h"

void loan_end(struct loan *loan)
{
    if (!loan->data)
        return;
    loan->conn->transport->sharing->give_back(loan->conn, loan->token);
    loan->data = NULL;
}

bool loan_good(const struct loan *loan)
{
    return !loan->data || loan->conn->transport->sharing->good(loan->conn, loan->token);
}

bool loan_holds_up(const struct loan *loan)
{
    return loan->data && loan->conn->transport->sharing->holds_up(loan->token);
}
