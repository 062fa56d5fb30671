/* SPDX-License-Identifier: Apache-2.0 */
/* Enters a namespace, makes the device, comes back. */
#include "net/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "net/segment.h"

static int fail(char *why, size_t size, const char *what)
{
    snprintf(why, size, "%s: %s", what, strerror(errno));
    return -1;
}

static int device_open(const char *device, bool offload, char *why, size_t size)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int header = VNET_LEN;
    unsigned able = offload ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 : 0;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return fail(why, size, "/dev/net/tun");
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(fd, TUNSETIFF, &request) || ioctl(fd, TUNSETVNETHDRSZ, &header) ||
        ioctl(fd, TUNSETOFFLOAD, able)) {
        fail(why, size, device);
        close(fd);
        return -1;
    }
    return fd;
}

int tap_open(const char *space, const char *device, bool offload, char *why, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", strchr(space, '/') ? "" : "/run/netns/", space);
    int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(path, O_RDONLY | O_CLOEXEC),
        fd = -1;
    if (here < 0 || there < 0) {
        fail(why, size, path);
    } else if (setns(there, CLONE_NEWNET)) {
        fail(why, size, space);
    } else {
        fd = device_open(device, offload, why, size);
        if (setns(here, CLONE_NEWNET)) {
            perror("hearth-switch: cannot go back to the first namespace");
            exit(1);
        }
    }
    if (here >= 0)
        close(here);
    if (there >= 0)
        close(there);
    return fd;
}
