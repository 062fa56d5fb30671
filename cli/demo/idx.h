/* SPDX-License-Identifier: Apache-2.0 */
/* Reads labelled images in the IDX format of MNIST and its relatives, plain or gzip. */
#pragma once

#include "core/error.h"

#define IDX_DIMS_MAX 3

/* One file: an array of bytes of up to three dimensions. */
struct idx {
    int dims;
    size_t dim[IDX_DIMS_MAX];
    uint8_t *bytes; /* product of the dimensions */
};

/* The text of an error names the file and what is wrong with it. */
int MUST_CHECK idx_read(const char *path, struct idx *idx, struct error *error);
void idx_free(struct idx *idx);

/* Images with their labels. */
struct dataset {
    struct idx images, labels;
    size_t count;
    int width, height; /* pixels */
    int classes;       /* largest label + 1 */
};

/* DIR/STEM-images-idx3-ubyte and DIR/STEM-labels-idx1-ubyte, each also with .gz. */
int MUST_CHECK dataset_read(const char *dir, const char *stem, struct dataset *set, struct error *error);
void dataset_free(struct dataset *set);
