/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a node's credentials: the same node to everybody, another instance, a life of its own. */
#include "ends.h"
#include "folder.h"
#include "support/suite.h"

static int begin(void **state)
{
    heap_init(&ends_heap, 0);
    return folder_make(state);
}

static int end(void **state)
{
    int left = folder_remove(state);
    return ends_heap.blocks == 0 ? left : -1;
}

static struct credentials *copy_of(const struct credentials *from, uint64_t instance)
{
    struct credentials *copy = NULL;
    struct error error;
    assert_int_equal(credentials_copy(from, &ends_heap, instance, &copy, &error), HEARTH_OK);
    return copy;
}

static void join(const struct credentials *a, const struct credentials *b)
{
    struct end dialler, listener;
    ends_join(&dialler, &listener, a, b);
    ends_exchange(&dialler, &listener, 1000);
    assert_memory_equal(channel_peer(dialler.channel), credentials_self(b), sizeof(struct identity));
    assert_memory_equal(channel_peer(listener.channel), credentials_self(a), sizeof(struct identity));
    end_close(&dialler);
    end_close(&listener);
}

TEST_WITH(a_copy_is_the_same_node_and_another_instance, begin, end)
{
    struct credentials *node = ends_node(&(struct node_options){.secret = 7, .instance = 1});
    struct credentials *other = ends_node(&(struct node_options){.secret = 7, .instance = 5});
    struct credentials *copy = copy_of(node, 2);
    assert_true(node_id_equal(&credentials_self(copy)->node, &credentials_self(node)->node));
    assert_int_equal(credentials_self(copy)->instance, 2);
    assert_int_equal(credentials_self(node)->instance, 1);
    assert_memory_equal(secret_bytes(credentials_secret(copy)), secret_bytes(credentials_secret(node)),
                        SECRET_LEN);
    assert_string_equal(secret_name(credentials_secret(copy)), secret_name(credentials_secret(node)));
    assert_null(credentials_trust(copy));
    join(copy, other);
    join(other, copy);
    credentials_close(node); /* the copy does not need it */
    join(copy, other);
    struct credentials *again = copy_of(copy, 3);
    credentials_close(copy);
    join(other, again);
    credentials_close(again);
    credentials_close(other);
}

TEST_WITH(a_copy_reads_the_list_itself, begin, end)
{
    const char *path = folder_path("trust");
    struct trust_list *list, *writer;
    struct node_id friend = {{1, 2, 3}};
    struct trust_entry entry = {.id = friend, .name = "friend"};
    struct error error;
    assert_int_equal(trust_list_open(&ends_heap, path, &list, &error), HEARTH_OK);
    struct credentials *node = ends_node(&(struct node_options){.secret = 7, .instance = 1, .trust = list});
    struct credentials *copy = copy_of(node, 2);
    assert_non_null(credentials_trust(copy));
    assert_ptr_not_equal(credentials_trust(copy), credentials_trust(node));
    assert_string_equal(trust_list_path(credentials_trust(copy)), path);
    assert_int_equal(trust_list_open(&ends_heap, path, &writer, &error), HEARTH_OK);
    assert_int_equal(trust_list_set(writer, &friend, &entry, &error), HEARTH_OK);
    trust_list_close(writer);
    credentials_close(node);
    assert_int_equal(trust_list_refresh(credentials_trust(copy), &error), HEARTH_OK);
    assert_int_equal(trust_list_count(credentials_trust(copy)), 1);
    credentials_close(copy);
}

TEST_WITH(a_list_that_cannot_be_read_makes_no_copy, begin, end)
{
    const char *path = folder_path("trust");
    struct trust_list *list;
    struct credentials *copy = NULL;
    struct error error;
    assert_int_equal(trust_list_open(&ends_heap, path, &list, &error), HEARTH_OK);
    struct credentials *node = ends_node(&(struct node_options){.secret = 7, .instance = 1, .trust = list});
    file_put(path, "nonsense\n", 9, 0600);
    assert_int_not_equal(credentials_copy(node, &ends_heap, 2, &copy, &error), HEARTH_OK);
    assert_null(copy);
    credentials_close(node);
}

TEST_WITH(a_copy_that_gets_no_memory_leaves_nothing, begin, end)
{
    struct credentials *node = ends_node(&(struct node_options){.secret = 7, .instance = 1});
    struct credentials *copy = NULL;
    struct error error;
    int status = HEARTH_NO_MEMORY, after = 0;
    for (; status != HEARTH_OK && after < 100; after++) {
        long blocks = (long)ends_heap.blocks;
        ends_heap.fail_after = after;
        status = credentials_copy(node, &ends_heap, 2, &copy, &error);
        ends_heap.fail_after = -1;
        if (status != HEARTH_OK) {
            assert_int_equal(status, HEARTH_NO_MEMORY);
            assert_int_equal(ends_heap.blocks, blocks);
        }
    }
    assert_in_range(after, 2, 99); /* it failed, and then it did not */
    credentials_close(copy);
    credentials_close(node);
}
