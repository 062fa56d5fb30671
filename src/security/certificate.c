/* SPDX-License-Identifier: Apache-2.0 */
/* Makes our certificate, and takes the key out of a peer's. */
#include "security/certificate.h"

#include <string.h>

#include <gnutls/abstract.h>
#include <gnutls/x509.h>

#define SERIAL_LEN 8

static int sign_data(gnutls_privkey_t privkey, gnutls_sign_algorithm_t algorithm, void *key,
                     unsigned int flags, const gnutls_datum_t *data, gnutls_datum_t *signature)
{
    (void)privkey;
    (void)flags;
    if (algorithm != GNUTLS_SIGN_EDDSA_ED25519)
        return GNUTLS_E_UNSUPPORTED_SIGNATURE_ALGORITHM;
    signature->data = gnutls_malloc(SIGNATURE_LEN);
    if (!signature->data)
        return GNUTLS_E_MEMORY_ERROR;
    signature->size = SIGNATURE_LEN;
    node_key_sign(key, data->data, data->size, signature->data);
    return 0;
}

static int sign_hash(gnutls_privkey_t privkey, gnutls_sign_algorithm_t algorithm, void *key,
                     unsigned int flags, const gnutls_datum_t *hash, gnutls_datum_t *signature)
{
    (void)privkey, (void)algorithm, (void)key, (void)flags, (void)hash, (void)signature;
    return GNUTLS_E_UNSUPPORTED_SIGNATURE_ALGORITHM; /* Ed25519 signs messages, not hashes */
}

static int key_info(gnutls_privkey_t privkey, unsigned int flags, void *key)
{
    (void)privkey;
    (void)key;
    if (flags & GNUTLS_PRIVKEY_INFO_PK_ALGO)
        return GNUTLS_PK_EDDSA_ED25519;
    if (flags & GNUTLS_PRIVKEY_INFO_SIGN_ALGO)
        return GNUTLS_SIGN_EDDSA_ED25519;
    if (flags & GNUTLS_PRIVKEY_INFO_HAVE_SIGN_ALGO)
        return GNUTLS_FLAGS_TO_SIGN_ALGO(flags) == GNUTLS_SIGN_EDDSA_ED25519;
    if (flags & GNUTLS_PRIVKEY_INFO_PK_ALGO_BITS)
        return 8 * PUBLIC_KEY_LEN;
    return -1;
}

/* The key in a certificate that it signs itself, valid for ever. */
static int fill_certificate(struct node_key *key, gnutls_x509_crt_t crt, gnutls_privkey_t privkey,
                            gnutls_pubkey_t pubkey)
{
    uint8_t public_key[PUBLIC_KEY_LEN], serial[SERIAL_LEN] = {1};
    gnutls_datum_t x = {public_key, PUBLIC_KEY_LEN};
    int done;

    memcpy(public_key, node_key_public(key), PUBLIC_KEY_LEN);
    if ((done = gnutls_privkey_import_ext4(privkey, key, sign_data, sign_hash, NULL, NULL, key_info, 0)) ||
        (done = gnutls_pubkey_import_ecc_raw(pubkey, GNUTLS_ECC_CURVE_ED25519, &x, NULL)) ||
        (done = gnutls_x509_crt_set_version(crt, 3)) ||
        (done = gnutls_x509_crt_set_serial(crt, serial, SERIAL_LEN)) ||
        (done = gnutls_x509_crt_set_dn(crt, "CN=hearth", NULL)) ||
        (done = gnutls_x509_crt_set_activation_time(crt, 0)) ||
        (done = gnutls_x509_crt_set_expiration_time(crt, GNUTLS_X509_NO_WELL_DEFINED_EXPIRATION)) ||
        (done = gnutls_x509_crt_set_pubkey(crt, pubkey)))
        return done;
    return gnutls_x509_crt_privkey_sign(crt, crt, privkey, GNUTLS_DIG_SHA512, 0);
}

int certificate_make(struct node_key *key, gnutls_certificate_credentials_t target)
{
    gnutls_x509_crt_t crt = NULL;
    gnutls_pubkey_t pubkey = NULL;
    gnutls_privkey_t privkey = NULL;
    gnutls_pcert_st shown;
    int done;

    if ((done = gnutls_x509_crt_init(&crt)) || (done = gnutls_pubkey_init(&pubkey)) ||
        (done = gnutls_privkey_init(&privkey)) || (done = fill_certificate(key, crt, privkey, pubkey)) ||
        (done = gnutls_pcert_import_x509(&shown, crt, 0)))
        goto out;
    done = gnutls_certificate_set_key(target, NULL, 0, &shown, 1, privkey);
    if (done < 0)
        gnutls_pcert_deinit(&shown);
    else
        privkey = NULL; /* both belong to the target now */
out:
    gnutls_x509_crt_deinit(crt);
    gnutls_pubkey_deinit(pubkey);
    gnutls_privkey_deinit(privkey);
    return done < 0 ? done : 0;
}

int certificate_key(const void *der, size_t len, uint8_t public_key[static PUBLIC_KEY_LEN])
{
    gnutls_datum_t bytes = {(unsigned char *)(uintptr_t)der, (unsigned int)len};
    gnutls_x509_crt_t crt = NULL;
    gnutls_pubkey_t pubkey = NULL;
    gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
    gnutls_datum_t x = {NULL, 0};
    int status = HEARTH_PROTOCOL;

    if (gnutls_x509_crt_init(&crt) == 0 && gnutls_pubkey_init(&pubkey) == 0 &&
        gnutls_x509_crt_import(crt, &bytes, GNUTLS_X509_FMT_DER) == 0 &&
        gnutls_pubkey_import_x509(pubkey, crt, 0) == 0 &&
        gnutls_pubkey_get_pk_algorithm(pubkey, NULL) == GNUTLS_PK_EDDSA_ED25519 &&
        gnutls_pubkey_export_ecc_raw2(pubkey, &curve, &x, NULL, 0) == 0 && x.size == PUBLIC_KEY_LEN) {
        memcpy(public_key, x.data, PUBLIC_KEY_LEN);
        status = HEARTH_OK;
    }
    gnutls_free(x.data);
    gnutls_pubkey_deinit(pubkey);
    gnutls_x509_crt_deinit(crt);
    return status;
}
