/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files that are right, and each way to be wrong: the error names the file and the trouble. */
#include <unistd.h>
#include <zlib.h>

#include "cli/demo/idx.h"
#include "support/suite.h"

#define PATH_LEN 256

static char directory[] = "/tmp/hearth-idx-XXXXXX";

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 1};

static void path_to(const char *name, char *path)
{
    snprintf(path, PATH_LEN, "%s/%s", directory, name);
}

static void write_plain(const char *name, const void *bytes, size_t len)
{
    char path[PATH_LEN];
    path_to(name, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void write_gzip(const char *name, const void *bytes, unsigned len)
{
    char path[PATH_LEN];
    path_to(name, path);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, len), len);
    assert_int_equal(gzclose(file), Z_OK);
}

static void expect_trouble(const char *name, const char *words)
{
    struct idx idx;
    struct error error;
    char path[PATH_LEN];
    path_to(name, path);
    assert_int_not_equal(idx_read(path, &idx, &error), HEARTH_OK);
    if (!strstr(error.text, name) || !strstr(error.text, words))
        fail_msg("'%s' names not both %s and '%s'", error.text, name, words);
}

TEST(test_reads)
{
    struct idx idx;
    struct error error;
    char path[PATH_LEN];
    write_plain("plain", images, sizeof images);
    write_gzip("packed", images, sizeof images);
    for (int i = 0; i < 2; i++) {
        path_to(i ? "packed" : "plain", path);
        assert_int_equal(idx_read(path, &idx, &error), HEARTH_OK);
        assert_int_equal(idx.dims, 3);
        assert_int_equal(idx.dim[0], 2);
        assert_int_equal(idx.dim[1], 2);
        assert_int_equal(idx.dim[2], 3);
        assert_memory_equal(idx.bytes, images + 16, 12);
        idx_free(&idx);
    }
}

TEST(test_every_truncation)
{
    for (size_t len = 0; len < sizeof images; len++) {
        write_plain("short", images, len);
        expect_trouble("short", "truncated");
    }
}

TEST(test_damage)
{
    static const struct {
        const char *name, *words;
        size_t at, count, len; /* bytes[at..at + count) are `value` */
        uint8_t value;
    } cases[] = {
        {"long", "longer than", 0, 0, sizeof images + 1, 0},
        {"floats", "not an IDX file", 2, 1, sizeof images, 0x0d},
        {"four", "not an IDX file", 3, 1, sizeof images, 4},
        {"empty", "dimension 0", 7, 1, sizeof images, 0},
        {"huge", "dimension 1", 4, 12, sizeof images, 0xff}, /* 2^96 bytes */
    };
    expect_trouble("missing", "cannot be opened");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[sizeof images + 1] = {0};
        memcpy(bytes, images, sizeof images);
        memset(bytes + cases[i].at, cases[i].value, cases[i].count);
        write_plain(cases[i].name, bytes, cases[i].len);
        expect_trouble(cases[i].name, cases[i].words);
    }
}

TEST(test_damaged_gzip)
{
    char path[PATH_LEN];
    uint8_t packed[256];
    write_gzip("cut.gz", images, sizeof images);
    path_to("cut.gz", path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t len = fread(packed, 1, sizeof packed, file);
    fclose(file);
    assert_true(len > 20 && len < sizeof packed);
    write_plain("cut.gz", packed, len - 12);
    expect_trouble("cut.gz", "");
    packed[len - 6] ^= 1; /* the checksum */
    write_plain("cut.gz", packed, len);
    expect_trouble("cut.gz", "damaged");
}

TEST(test_dataset)
{
    struct dataset set;
    struct error error;
    write_gzip("train-images-idx3-ubyte.gz", images, sizeof images);
    assert_int_not_equal(dataset_read(directory, "train", &set, &error), HEARTH_OK);
    assert_non_null(strstr(error.text, "train-labels-idx1-ubyte: no such file"));
    write_plain("train-labels-idx1-ubyte", labels, sizeof labels);
    assert_int_equal(dataset_read(directory, "train", &set, &error), HEARTH_OK);
    assert_int_equal(set.count, 2);
    assert_int_equal(set.height, 2);
    assert_int_equal(set.width, 3);
    assert_int_equal(set.classes, 5);
    dataset_free(&set);
}

TEST(test_dataset_mismatch)
{
    static const uint8_t three[] = {0, 0, 8, 1, 0, 0, 0, 3, 4, 1, 1};
    struct dataset set;
    struct error error;
    write_plain("odd-images-idx3-ubyte", images, sizeof images);
    write_plain("odd-labels-idx1-ubyte", three, sizeof three);
    assert_int_not_equal(dataset_read(directory, "odd", &set, &error), HEARTH_OK);
    assert_non_null(strstr(error.text, "2 images, but 3 labels"));
    write_plain("odd-images-idx3-ubyte", labels, sizeof labels);
    assert_int_not_equal(dataset_read(directory, "odd", &set, &error), HEARTH_OK);
    assert_non_null(strstr(error.text, "3 dimensions"));
}

int main(void)
{
    static const char *const names[] = {"plain",
                                        "packed",
                                        "short",
                                        "long",
                                        "floats",
                                        "four",
                                        "empty",
                                        "huge",
                                        "cut.gz",
                                        "train-images-idx3-ubyte.gz",
                                        "train-labels-idx1-ubyte",
                                        "odd-images-idx3-ubyte",
                                        "odd-labels-idx1-ubyte"};
    if (!mkdtemp(directory))
        return 1;
    int result = suite_run();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_LEN];
        path_to(names[i], path);
        unlink(path);
    }
    return rmdir(directory) || result;
}
