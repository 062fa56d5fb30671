/* SPDX-License-Identifier: Apache-2.0 */
/* The desk's name: the same for the same user and folder, another for any other. */
#include "cluster/control_socket.h"
#include "os/sock.h"
#include "support/suite.h"

TEST(test_place)
{
    static const struct {
        const char *folder;
        uint32_t user;
    } places[] = {{"/home/a/.config/hearth", 1000},
                  {"/home/a/.config/hearth", 1001},
                  {"/home/b/.config/hearth", 1000},
                  {"/home/a/.config/hearth", UINT32_MAX}};
    char names[4][CONTROL_SOCKET_PLACE_MAX], again[CONTROL_SOCKET_PLACE_MAX];
    struct sock_addr addr;
    for (int i = 0; i < 4; i++) {
        control_socket_place(places[i].folder, places[i].user, names[i], sizeof names[i]);
        control_socket_place(places[i].folder, places[i].user, again, sizeof again);
        assert_string_equal(names[i], again);
        assert_int_equal(sock_addr_parse(names[i], 0, &addr), HEARTH_OK);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(names[i], names[j]);
    }
    assert_int_equal(strncmp(names[0], "unix:@hearth-1000-", 18), 0);
    assert_int_equal(strlen(names[0]), 18 + 16);
    assert_int_equal(strspn(names[0] + 18, "0123456789abcdef"), 16);
}
