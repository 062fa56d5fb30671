/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for libFuzzer: runs a fuzz target once on every file of its corpus, so that corpora are tests. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define INPUT_MAX (1u << 20)

static int replay_file(const char *path)
{
    static uint8_t bytes[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    size_t len = fread(bytes, 1, sizeof bytes, file);
    int cut = fgetc(file) != EOF;
    fclose(file);
    if (cut) {
        fprintf(stderr, "%s: longer than %u bytes\n", path, INPUT_MAX);
        return -1;
    }

    /* An exact block on the heap, so that sanitizers see one byte too many. */
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact)
        return -1;
    for (size_t i = 0; i < len; i++)
        exact[i] = bytes[i];
    (void)LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
        return 2;
    }
    DIR *dir = opendir(argv[1]);
    if (!dir) {
        perror(argv[1]);
        return 1;
    }
    unsigned count = 0, bad = 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (entry->d_name[0] == '.')
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        bad += replay_file(path) != 0;
        count++;
    }
    closedir(dir);
    printf("%u inputs\n", count);
    return bad || !count;
}
