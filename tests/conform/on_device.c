/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes them. */
#include "conform/on_device.h"

void open_device(struct fixture *c, int size, const struct hearth_config *config, struct fake_device *device)
{
    fixture_open(c, size, config);
    fake_device_open(device, DEVICE_LEN);
    for (int r = 0; r < size; r++)
        assert_ok(hearth_group_set_memory(c->world[r], &device->memory));
}

void close_device(struct fixture *c, struct fake_device *device)
{
    fixture_close(c);
    assert_int_equal(atomic_load(&device->wrong), 0);
    assert_int_equal(atomic_load(&device->inside), 0);
    fake_device_close(device);
}
