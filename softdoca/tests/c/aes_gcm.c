/* AES-GCM. */
#include "world.h"

#include <doca_aes_gcm.h>

CALLBACKS(doca_aes_gcm_task_encrypt)
CALLBACKS(doca_aes_gcm_task_decrypt)

/* Test case 4 of the GCM specification. */
static const uint8_t key_bytes[] = {0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65, 0x73, 0x1c, 0x6d, 0x6a, 0x8f, 0x94,
				0x67, 0x30, 0x83, 0x08};
static const uint8_t iv[] = {0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce, 0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88};
static const uint8_t plain[] = {
	/* authenticated only */
	0xfe, 0xed, 0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xfe, 0xed, 0xfa, 0xce,
	0xde, 0xad, 0xbe, 0xef, 0xab, 0xad, 0xda, 0xd2,
	/* encrypted */
	0xd9, 0x31, 0x32, 0x25, 0xf8, 0x84, 0x06, 0xe5, 0xa5, 0x59, 0x09, 0xc5,
	0xaf, 0xf5, 0x26, 0x9a, 0x86, 0xa7, 0xa9, 0x53, 0x15, 0x34, 0xf7, 0xda,
	0x2e, 0x4c, 0x30, 0x3d, 0x8a, 0x31, 0x8a, 0x72, 0x1c, 0x3c, 0x0c, 0x95,
	0x95, 0x68, 0x09, 0x53, 0x2f, 0xcf, 0x0e, 0x24, 0x49, 0xa6, 0xb5, 0x25,
	0xb1, 0x6a, 0xed, 0xf5, 0xaa, 0x0d, 0xe6, 0x57, 0xba, 0x63, 0x7b, 0x39};
static const uint8_t encrypted[] = {
	/* authenticated only */
	0xfe, 0xed, 0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xfe, 0xed, 0xfa, 0xce,
	0xde, 0xad, 0xbe, 0xef, 0xab, 0xad, 0xda, 0xd2,
	/* ciphertext */
	0x42, 0x83, 0x1e, 0xc2, 0x21, 0x77, 0x74, 0x24, 0x4b, 0x72, 0x21, 0xb7,
	0x84, 0xd0, 0xd4, 0x9c, 0xe3, 0xaa, 0x21, 0x2f, 0x2c, 0x02, 0xa4, 0xe0,
	0x35, 0xc1, 0x7e, 0x23, 0x29, 0xac, 0xa1, 0x2e, 0x21, 0xd5, 0x14, 0xb2,
	0x54, 0x66, 0x93, 0x1c, 0x7d, 0x8f, 0x6a, 0x5a, 0xac, 0x84, 0xaa, 0x05,
	0x1b, 0xa3, 0x0b, 0x39, 0x6a, 0x0a, 0xac, 0x97, 0x3d, 0x58, 0xe0, 0x91,
	/* tag */
	0x5b, 0xc9, 0x4f, 0xbc, 0x32, 0x21, 0xa5, 0xdb, 0x94, 0xfa, 0xe9, 0x5a,
	0xe7, 0x12, 0x1a, 0x47};
#define AAD 20
#define TAG 16

TEST(aes_gcm_has_limits, doca_aes_gcm_cap_get_max_num_tasks,
     doca_aes_gcm_cap_task_encrypt_is_supported, doca_aes_gcm_cap_task_encrypt_get_max_iv_len,
     doca_aes_gcm_cap_task_encrypt_is_tag_96_supported, doca_aes_gcm_cap_task_encrypt_is_tag_128_supported,
     doca_aes_gcm_cap_task_encrypt_is_key_type_supported, doca_aes_gcm_cap_task_encrypt_get_max_buf_size,
     doca_aes_gcm_cap_task_encrypt_get_max_list_buf_num_elem,
     doca_aes_gcm_cap_task_decrypt_is_supported, doca_aes_gcm_cap_task_decrypt_get_max_iv_len,
     doca_aes_gcm_cap_task_decrypt_is_tag_96_supported, doca_aes_gcm_cap_task_decrypt_is_tag_128_supported,
     doca_aes_gcm_cap_task_decrypt_is_key_type_supported, doca_aes_gcm_cap_task_decrypt_get_max_buf_size,
     doca_aes_gcm_cap_task_decrypt_get_max_list_buf_num_elem)
{
	struct world world = world_create();
	struct doca_aes_gcm *gcm = NULL;
	uint32_t tasks = 0;

#define LIMITS(task)                                                                                                   \
	do {                                                                                                           \
		uint64_t size = 0;                                                                                     \
		uint32_t list = 0, length = 0;                                                                         \
		OK(doca_aes_gcm_cap_task_##task##_is_supported(world.info));                                           \
		REFUSED(doca_aes_gcm_cap_task_##task##_is_supported(NULL));                                            \
		OK(doca_aes_gcm_cap_task_##task##_is_tag_96_supported(world.info));                                    \
		REFUSED(doca_aes_gcm_cap_task_##task##_is_tag_96_supported(NULL));                                     \
		OK(doca_aes_gcm_cap_task_##task##_is_tag_128_supported(world.info));                                   \
		REFUSED(doca_aes_gcm_cap_task_##task##_is_tag_128_supported(NULL));                                    \
		OK(doca_aes_gcm_cap_task_##task##_is_key_type_supported(world.info, DOCA_AES_GCM_KEY_256));            \
		REFUSED(doca_aes_gcm_cap_task_##task##_is_key_type_supported(world.info,                               \
									     (enum doca_aes_gcm_key_type)0));          \
		OK(doca_aes_gcm_cap_task_##task##_get_max_iv_len(world.info, &length));                                \
		CHECK(length == 12);                                                                                   \
		OK(doca_aes_gcm_cap_task_##task##_get_max_buf_size(world.info, &size));                                \
		CHECK(size >= 1024 * 1024);                                                                            \
		OK(doca_aes_gcm_cap_task_##task##_get_max_list_buf_num_elem(world.info, &list));                       \
		CHECK(list >= 1);                                                                                      \
	} while (0)

	LIMITS(encrypt);
	LIMITS(decrypt);
	OK(doca_aes_gcm_create(world.dev, &gcm));
	OK(doca_aes_gcm_cap_get_max_num_tasks(gcm, &tasks));
	CHECK(tasks >= 64);
	OK(doca_aes_gcm_destroy(gcm));
	world_destroy(&world);
}

/* Sets all properties of a task, which was allocated with other values. */
#define TASK(kind, source, destination)                                                                                \
	do {                                                                                                           \
		uint32_t length = 0;                                                                                   \
		OK(doca_aes_gcm_task_##kind##_alloc_init(gcm, other, other, wrong, NULL, 0, 12, 0, NO_DATA, &kind));   \
		CHECK(doca_aes_gcm_task_##kind##_get_src(kind) == other);                                              \
		CHECK(doca_aes_gcm_task_##kind##_get_dst(kind) == other);                                              \
		CHECK(doca_aes_gcm_task_##kind##_get_key(kind) == wrong);                                              \
		CHECK(doca_aes_gcm_task_##kind##_get_tag_size(kind) == 12);                                            \
		doca_aes_gcm_task_##kind##_set_src(kind, source);                                                      \
		doca_aes_gcm_task_##kind##_set_dst(kind, destination);                                                 \
		doca_aes_gcm_task_##kind##_set_key(kind, key);                                                         \
		doca_aes_gcm_task_##kind##_set_iv(kind, iv, sizeof(iv));                                               \
		doca_aes_gcm_task_##kind##_set_tag_size(kind, TAG);                                                    \
		doca_aes_gcm_task_##kind##_set_aad_size(kind, AAD);                                                    \
		CHECK(doca_aes_gcm_task_##kind##_get_src(kind) == (source));                                           \
		CHECK(doca_aes_gcm_task_##kind##_get_dst(kind) == (destination));                                      \
		CHECK(doca_aes_gcm_task_##kind##_get_key(kind) == key);                                                \
		CHECK(memcmp(doca_aes_gcm_task_##kind##_get_iv(kind, &length), iv, sizeof(iv)) == 0);                  \
		CHECK(length == sizeof(iv));                                                                           \
		CHECK(doca_aes_gcm_task_##kind##_get_tag_size(kind) == TAG);                                           \
		CHECK(doca_aes_gcm_task_##kind##_get_aad_size(kind) == AAD);                                           \
		world_run(&world, doca_aes_gcm_task_##kind##_as_task(kind), true);                                     \
	} while (0)

TEST(aes_gcm_goes_there_and_back, doca_aes_gcm_create, doca_aes_gcm_destroy, doca_aes_gcm_as_ctx, doca_aes_gcm_key_create,
     doca_aes_gcm_key_destroy,
     doca_aes_gcm_task_encrypt_set_conf, doca_aes_gcm_task_encrypt_alloc_init, doca_aes_gcm_task_encrypt_as_task,
     doca_aes_gcm_task_encrypt_set_src, doca_aes_gcm_task_encrypt_get_src, doca_aes_gcm_task_encrypt_set_dst,
     doca_aes_gcm_task_encrypt_get_dst, doca_aes_gcm_task_encrypt_set_key, doca_aes_gcm_task_encrypt_get_key,
     doca_aes_gcm_task_encrypt_set_iv, doca_aes_gcm_task_encrypt_get_iv, doca_aes_gcm_task_encrypt_set_tag_size,
     doca_aes_gcm_task_encrypt_get_tag_size, doca_aes_gcm_task_encrypt_set_aad_size, doca_aes_gcm_task_encrypt_get_aad_size,
     doca_aes_gcm_task_decrypt_set_conf, doca_aes_gcm_task_decrypt_alloc_init, doca_aes_gcm_task_decrypt_as_task,
     doca_aes_gcm_task_decrypt_set_src, doca_aes_gcm_task_decrypt_get_src, doca_aes_gcm_task_decrypt_set_dst,
     doca_aes_gcm_task_decrypt_get_dst, doca_aes_gcm_task_decrypt_set_key, doca_aes_gcm_task_decrypt_get_key,
     doca_aes_gcm_task_decrypt_set_iv, doca_aes_gcm_task_decrypt_get_iv, doca_aes_gcm_task_decrypt_set_tag_size,
     doca_aes_gcm_task_decrypt_get_tag_size, doca_aes_gcm_task_decrypt_set_aad_size, doca_aes_gcm_task_decrypt_get_aad_size)
{
	struct world world = world_create();
	struct doca_buf *text = world_data(&world, 0, sizeof(plain)), *sealed = world_room(&world, 4096, sizeof(encrypted));
	struct doca_buf *opened = world_room(&world, 8192, sizeof(plain)), *other = world_data(&world, 12288, 1);
	struct doca_aes_gcm *gcm = NULL;
	struct doca_aes_gcm_key *key = NULL, *wrong = NULL;
	struct doca_aes_gcm_task_encrypt *encrypt = NULL;
	struct doca_aes_gcm_task_decrypt *decrypt = NULL;
	static const uint8_t zeros[32];

	OK(doca_aes_gcm_create(world.dev, &gcm));
	OK(doca_aes_gcm_task_encrypt_set_conf(gcm, doca_aes_gcm_task_encrypt_completed, doca_aes_gcm_task_encrypt_failed, 1));
	OK(doca_aes_gcm_task_decrypt_set_conf(gcm, doca_aes_gcm_task_decrypt_completed, doca_aes_gcm_task_decrypt_failed, 1));
	world_start(&world, doca_aes_gcm_as_ctx(gcm));
	OK(doca_aes_gcm_key_create(gcm, key_bytes, DOCA_AES_GCM_KEY_128, &key));
	OK(doca_aes_gcm_key_create(gcm, zeros, DOCA_AES_GCM_KEY_256, &wrong));
	REFUSED(doca_aes_gcm_key_create(gcm, NULL, DOCA_AES_GCM_KEY_128, &wrong));
	memcpy(world.memory, plain, sizeof(plain));
	TASK(encrypt, text, sealed);
	CHECK(data_length(sealed) == sizeof(encrypted));
	CHECK(memcmp(world.memory + 4096, encrypted, sizeof(encrypted)) == 0);
	TASK(decrypt, sealed, opened);
	CHECK(data_length(opened) == sizeof(plain) && memcmp(world.memory + 8192, plain, sizeof(plain)) == 0);
	/* A wrong tag. */
	world.memory[4096 + sizeof(encrypted) - 1] ^= 1;
	world_run(&world, doca_aes_gcm_task_decrypt_as_task(decrypt), false);
	doca_task_free(doca_aes_gcm_task_encrypt_as_task(encrypt));
	doca_task_free(doca_aes_gcm_task_decrypt_as_task(decrypt));
	OK(doca_aes_gcm_key_destroy(key));
	OK(doca_aes_gcm_key_destroy(wrong));
	REFUSED(doca_aes_gcm_key_destroy(NULL));
	world_release(text);
	world_release(sealed);
	world_release(opened);
	world_release(other);
	/* Not while it runs. */
	CHECK(doca_aes_gcm_destroy(gcm) != DOCA_SUCCESS);
	world_stop(&world, doca_aes_gcm_as_ctx(gcm));
	OK(doca_aes_gcm_destroy(gcm));
	world_destroy(&world);
}
