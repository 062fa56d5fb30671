/* SPDX-License-Identifier: Apache-2.0 */
/* What transports share: loans, and slots for those that have nothing to do there. */
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

int conn_no_descriptor(const struct conn *conn)
{
    (void)conn;
    return -1;
}

void conn_attend_nothing(struct conn *conn)
{
    (void)conn;
}

void conn_doze_nothing(struct conn *conn, bool asleep, bool want_room)
{
    (void)conn, (void)asleep, (void)want_room;
}
