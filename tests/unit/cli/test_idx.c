/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files that are right, and each way to be wrong: the error names the file and the trouble. */
#include <unistd.h>
#include <zlib.h>

#include "cli/demo/idx.h"
#include "support/suite.h"

#define PATH_LEN 256

static char directory[32];

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

static void remove_file(const char *name)
{
    char path[PATH_LEN];
    path_to(name, path);
    unlink(path);
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

static int make_directory(void **state)
{
    snprintf(directory, sizeof directory, "/tmp/hearth-idx-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
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
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove_file(names[i]);
    return rmdir(directory);
}

TEST_WITH(reads, make_directory, remove_directory)
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

TEST_WITH(every_truncation, make_directory, remove_directory)
{
    for (size_t len = 0; len < sizeof images; len++) {
        write_plain("short", images, len);
        expect_trouble("short", "truncated");
    }
}

TEST_WITH(damage, make_directory, remove_directory)
{
    uint8_t bytes[sizeof images + 1] = {0};
    expect_trouble("missing", "cannot be opened");
    memcpy(bytes, images, sizeof images);
    write_plain("long", bytes, sizeof bytes);
    expect_trouble("long", "longer than");
    bytes[2] = 0x0d; /* floats */
    write_plain("floats", bytes, sizeof images);
    expect_trouble("floats", "not an IDX file");
    bytes[2] = 8;
    bytes[3] = 4;
    write_plain("four", bytes, sizeof images);
    expect_trouble("four", "not an IDX file");
    bytes[3] = 3;
    bytes[7] = 0;
    write_plain("empty", bytes, sizeof images);
    expect_trouble("empty", "dimension 0");
    memset(bytes + 4, 0xff, 12); /* 2^96 bytes */
    write_plain("huge", bytes, sizeof images);
    expect_trouble("huge", "dimension 1");
}

TEST_WITH(damaged_gzip, make_directory, remove_directory)
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

TEST_WITH(test_dataset, make_directory, remove_directory)
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

TEST_WITH(dataset_mismatch, make_directory, remove_directory)
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
