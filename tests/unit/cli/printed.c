/* SPDX-License-Identifier: Apache-2.0 */
/* What a function prints, as a text, and a cluster to print. */
#include "printed.h"
#include "support/suite.h"

FILE *printed_open(struct printed *printed)
{
    *printed = (struct printed){.text = NULL};
    printed->file = open_memstream(&printed->text, &printed->len);
    assert_non_null(printed->file);
    return printed->file;
}

const char *printed_text(struct printed *printed)
{
    assert_int_equal(fclose(printed->file), 0);
    return printed->text;
}

void printed_free(struct printed *printed)
{
    free(printed->text);
}

const char *page_of(void (*print)(const json_t *object, FILE *file), const json_t *object)
{
    static struct printed page;
    printed_free(&page);
    print(object, printed_open(&page));
    return printed_text(&page);
}

void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in:\n%s", part, text);
}

void assert_lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("'%s' is in:\n%s", part, text);
}

static const char sample[] =
    "{'version': '0.1.0', 'cluster': {'name': 'lab', 'namespace': '00112233'},"
    "'self': {'id': 'aa', 'short': 'k7f3-9qwe-2xyz', 'name': 'desk', 'port': 52416, 'transport': 'auto',"
    " 'plain': false},"
    "'view': {'instance': 'c1', 'epoch': 3, 'term': 2, 'leader': 0, 'state': 'member', 'why': '', 'members': "
    "["
    " {'rank': 0, 'id': 'aa', 'short': 'k7f3-9qwe-2xyz', 'name': 'desk', 'state': 'self',"
    "  'addresses': ['192.168.1.2:52416'], 'uptime': 1, 'cores': 8, 'memory_mib': 16384, 'cpu': ['avx2', "
    "'aes'],"
    "  'system': 'Linux 6.1', 'flags': ['demo'], 'late_us': 0, 'straggler': false},"
    " {'rank': 1, 'id': 'bb', 'short': 'm3aa-bbbb-cccc', 'name': 'nas', 'state': 'healthy',"
    "  'addresses': ['192.168.1.3:52416', '[fd00::3]:52416'], 'latency_us': 210, 'uptime': 1, 'cores': 1,"
    "  'late_us': 120, 'straggler': false},"
    " {'rank': 2, 'id': 'cc', 'short': 'p9cc-dddd-eeee', 'name': 'laptop', 'state': 'degraded',"
    "  'addresses': ['192.168.1.4:52416'], 'latency_us': 5400, 'uptime': 0.97, 'late_us': 90000,"
    "  'straggler': true, 'slow_why': 'its line carries 94.0 Mbit/s, the next slowest 940.5 Mbit/s'}]},"
    "'links': ["
    " {'from': 0, 'to': 1, 'mbit': 940.5, 'round_trip_us': 210, 'loss': 0, 'kind': 'wire', 'probes': 5,"
    "  'age_s': 10},"
    " {'from': 1, 'to': 0, 'mbit': 938, 'round_trip_us': 220, 'loss': 0, 'kind': 'wire', 'probes': 5,"
    "  'age_s': 11},"
    " {'from': 0, 'to': 2, 'mbit': 94, 'round_trip_us': 5400, 'loss': 0.03, 'kind': 'wireless', 'probes': 3,"
    "  'age_s': 12},"
    " {'from': 2, 'to': 1, 'mbit': 0, 'round_trip_us': 5600, 'loss': 0, 'kind': 'wireless', 'probes': 0,"
    "  'age_s': 65535}],"
    "'peers': [{'job': 'train', 'rank': 2, 'id': 'bb', 'name': 'nas', 'transport': 'tcp+tls', 'why': 'near',"
    "  'address': '192.168.1.3:52416'}],"
    "'nodes': ["
    " {'id': 'ee', 'short': 'zzzz-dddd-eeee', 'name': 'neighbour', 'address': '192.168.1.9:52416',"
    "  'cluster': 'other', 'namespace': 'ff112233445566778899aabbccddeeff', 'member': false, 'why': ''},"
    " {'id': 'bb', 'short': 'm3aa-bbbb-cccc', 'name': 'nas', 'address': '192.168.1.3:52416', 'cluster': "
    "'ours',"
    "  'namespace': '00112233', 'member': true, 'why': ''},"
    " {'id': 'bb', 'short': 'm3aa-bbbb-cccc', 'name': 'nas', 'address': '[fd00::3]:52416', 'cluster': 'ours',"
    "  'namespace': '00112233', 'member': true, 'why': ''},"
    " {'id': 'dd', 'short': 'q1dd-dddd-eeee', 'name': 'attic', 'address': '192.168.1.5:52416',"
    "  'cluster': 'ours', 'namespace': '00112233', 'member': false, 'why': 'its key was revoked'}],"
    "'jobs': [{'job': 'train', 'min': 3, 'waiting': 2, 'running': 0}], 'order': [0, 2, 1],"
    "'sites': [0, 0, 1],"
    "'discovery': {'mdns': true, 'text': 'mdns works (helper 4711)', 'seeds': ['10.0.0.1:52415']},"
    "'traffic': {'sent': 1048576, 'received': 2048}}";

json_t *sample_status(void)
{
    char text[sizeof sample];
    json_error_t error;
    for (size_t i = 0; i < sizeof sample; i++)
        text[i] = sample[i] == '\'' ? '"' : sample[i];
    json_t *status = json_loads(text, 0, &error);
    if (!status)
        fail_msg("%s at %d", error.text, error.position);
    return status;
}
