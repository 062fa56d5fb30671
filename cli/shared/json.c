/* SPDX-License-Identifier: Apache-2.0 */
/* What --json prints: one object {"command", "machine", "results": [...]}, made with jansson. */
#include "cli/shared/json.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/shared/text.h"
#include "os/thread.h"

#define LINE_MAX_LEN 512

/* x86 and many ARM kernels name the processor in /proc/cpuinfo; elsewhere the architecture has to do. */
static void cpu_name(char *name, size_t size, const char *otherwise)
{
    char line[LINE_MAX_LEN];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(name, size, "%s", otherwise);
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0)
            continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(name, size, "%s", value);
        break;
    }
    if (file)
        fclose(file);
}

static json_t *machine_json(void)
{
    json_t *object = json_object();
    struct utsname system = {.sysname = "unknown"};
    char cpu[LINE_MAX_LEN], kernel[sizeof system.sysname + sizeof system.release + 2], compiler[128];
    long pages = sysconf(_SC_PHYS_PAGES), page_len = sysconf(_SC_PAGESIZE);
    (void)uname(&system);
    cpu_name(cpu, sizeof cpu, system.machine);
    snprintf(kernel, sizeof kernel, "%s %s", system.sysname, system.release);
    /* gcc gives its bare number, clang its name too. */
    snprintf(compiler, sizeof compiler, "%s%s", isdigit((unsigned char)__VERSION__[0]) ? "gcc " : "",
             __VERSION__);
    row_text(object, "cpu", cpu);
    row_count(object, "cores", (uint64_t)cpu_count());
    row_count(object, "memory_bytes", pages > 0 && page_len > 0 ? (uint64_t)pages * (uint64_t)page_len : 0);
    row_text(object, "kernel", kernel);
    row_text(object, "arch", system.machine);
    row_text(object, "compiler", compiler);
    return object;
}

void machine_line(char *text, size_t size)
{
    json_t *m = machine_json();
    int cores = (int)json_count_of(m, "cores");
    snprintf(text, size, "%s, %d core%s, %s", json_text_of(m, "cpu"), cores, cores == 1 ? "" : "s",
             text_bytes(json_real_of(m, "memory_bytes")).s);
    json_decref(m);
}

static json_t *command_json(int argc, char **argv)
{
    char line[LINE_MAX_LEN * 4];
    size_t at = (size_t)snprintf(line, sizeof line, "hearth");
    for (int i = 0; i < argc && at < sizeof line; i++)
        at += (size_t)snprintf(line + at, sizeof line - at, " %s", argv[i]);
    json_t *text = json_string(line);
    return text ? text : json_string("hearth"); /* arguments that are not UTF-8 */
}

json_t *doc_open(int argc, char **argv)
{
    json_t *doc = json_object();
    if (!doc || json_object_set_new(doc, "command", command_json(argc, argv)) ||
        json_object_set_new(doc, "machine", machine_json()) ||
        json_object_set_new(doc, "results", json_array())) {
        fprintf(stderr, "hearth: no memory for the JSON output\n");
        json_decref(doc);
        return NULL;
    }
    return doc;
}

json_t *doc_row(json_t *doc)
{
    json_t *row = json_object();
    json_array_append_new(json_object_get(doc, "results"), row);
    return row;
}

static json_t *value_of(char type, va_list *args)
{
    double real;
    switch (type) {
    case 's':
        return json_string(va_arg(*args, const char *));
    case 'i':
        return json_integer(va_arg(*args, int));
    case 'z':
        return json_integer((json_int_t)va_arg(*args, size_t));
    case 'b':
        return json_boolean(va_arg(*args, int));
    default:
        assert(type == 'f');
        real = va_arg(*args, double);
        return isfinite(real) ? json_real(real) : json_null();
    }
}

json_t *doc_add(json_t *doc, const char *fields, ...)
{
    json_t *row = doc_row(doc);
    char key[32];
    va_list args;
    va_start(args, fields);
    while (*fields) {
        size_t len = strcspn(fields, ":");
        assert(len < sizeof key && fields[len]);
        snprintf(key, sizeof key, "%.*s", (int)len, fields);
        json_object_set_new(row, key, value_of(fields[len + 1], &args));
        fields += len + 2;
        fields += strspn(fields, " ");
    }
    va_end(args);
    return row;
}

bool doc_close(json_t *doc)
{
    bool written = json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    written = putchar('\n') != EOF && fflush(stdout) == 0 && written;
    if (!written)
        perror("hearth: cannot write the JSON output");
    json_decref(doc);
    return written;
}

void row_text(json_t *row, const char *key, const char *value)
{
    json_object_set_new(row, key, json_string(value));
}

void row_count(json_t *row, const char *key, uint64_t value)
{
    json_object_set_new(row, key, json_integer((json_int_t)value));
}

void row_real(json_t *row, const char *key, double value)
{
    json_object_set_new(row, key, isfinite(value) ? json_real(value) : json_null());
}

void row_bool(json_t *row, const char *key, bool value)
{
    json_object_set_new(row, key, json_boolean(value));
}

/* ---- reading ---- */

const char *json_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int64_t json_count_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

double json_real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

bool json_flag_of(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}
