/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for keys: each thing has pages of its own, with their length in front. */
#include "security/vault.h"

#include <stdalign.h>
#include <stdint.h>

#include <gnutls/gnutls.h>

#include "os/memory.h"

#define STACK_LEFT 16384 /* more than the hashes and curves of our libraries use */

struct head {
    alignas(64) size_t len; /* of the pages, this head included */
};

void *vault_alloc(size_t len)
{
    size_t page = memory_page();
    struct head *head;

    if (len > SIZE_MAX - sizeof *head - page)
        return NULL;
    len = (len + sizeof *head + page - 1) / page * page;
    head = private_pages_map(len);
    if (!head)
        return NULL;
    head->len = len;
    return head + 1;
}

void vault_free(void *memory)
{
    struct head *head = memory;
    size_t len;

    if (!head)
        return;
    head--;
    len = head->len;
    if (len == 0) /* a forked child: all is wiped, the length too */
        len = memory_page();
    wipe(head, len);
    private_pages_unmap(head, len);
}

void wipe(void *memory, size_t len)
{
    gnutls_memset(memory, 0, len);
}

__attribute__((noinline)) void wipe_stack(void)
{
    uint8_t left[STACK_LEFT];

    wipe(left, sizeof left);
}
