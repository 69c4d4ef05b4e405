/* Deflate compression and decompression, LZ4 decompression. */
#include "world.h"

#include <doca_compress.h>

CALLBACKS(doca_compress_task_compress_deflate)
CALLBACKS(doca_compress_task_decompress_deflate)
CALLBACKS(doca_compress_task_decompress_lz4_stream)
CALLBACKS(doca_compress_task_decompress_lz4_block)

/* Checksums of "123456789", the usual check values. */
#define NINE "123456789"
#define NINE_CRC32 0xcbf43926
#define NINE_ADLER32 0x091e01de
/* In the byte order of its specification, the big end first. */
#define NINE_XXH32 __builtin_bswap32(0x937bad67)

#define ROOM 4096

TEST(compression_has_limits, doca_compress_cap_get_max_num_tasks, doca_compress_cap_task_compress_deflate_is_supported,
     doca_compress_cap_task_compress_deflate_get_max_buf_size, doca_compress_cap_task_compress_deflate_get_max_buf_list_len,
     doca_compress_cap_task_decompress_deflate_is_supported, doca_compress_cap_task_decompress_deflate_get_max_buf_size,
     doca_compress_cap_task_decompress_deflate_get_max_buf_list_len,
     doca_compress_cap_task_decompress_lz4_stream_is_supported,
     doca_compress_cap_task_decompress_lz4_stream_get_max_buf_size,
     doca_compress_cap_task_decompress_lz4_stream_get_max_buf_list_len,
     doca_compress_cap_task_decompress_lz4_block_is_supported, doca_compress_cap_task_decompress_lz4_block_get_max_buf_size,
     doca_compress_cap_task_decompress_lz4_block_get_max_buf_list_len)
{
	struct world world = world_create();
	struct doca_compress *compress;
	uint32_t tasks = 0;

#define LIMITS(task)                                                                                                   \
	do {                                                                                                           \
		uint64_t size = 0;                                                                                     \
		uint32_t list = 0;                                                                                     \
		OK(doca_compress_cap_task_##task##_is_supported(world.info));                                          \
		REFUSED(doca_compress_cap_task_##task##_is_supported(NULL));                                           \
		OK(doca_compress_cap_task_##task##_get_max_buf_size(world.info, &size));                               \
		CHECK(size >= 65536);                                                                                  \
		OK(doca_compress_cap_task_##task##_get_max_buf_list_len(world.info, &list));                           \
		CHECK(list >= 1);                                                                                      \
	} while (0)

	LIMITS(compress_deflate);
	LIMITS(decompress_deflate);
	LIMITS(decompress_lz4_stream);
	LIMITS(decompress_lz4_block);
	OK(doca_compress_create(world.dev, &compress));
	OK(doca_compress_cap_get_max_num_tasks(compress, &tasks));
	CHECK(tasks >= 64);
	OK(doca_compress_destroy(compress));
	world_destroy(&world);
}

/* Getters and setters of the two bufs. */
#define BUFS(task, handle, src, dst, other_src, other_dst)                                                             \
	do {                                                                                                           \
		CHECK(doca_compress_task_##task##_get_src(handle) == (src));                                           \
		CHECK(doca_compress_task_##task##_get_dst(handle) == (dst));                                           \
		doca_compress_task_##task##_set_src(handle, other_src);                                                \
		doca_compress_task_##task##_set_dst(handle, other_dst);                                                \
		CHECK(doca_compress_task_##task##_get_src(handle) == (other_src));                                     \
		CHECK(doca_compress_task_##task##_get_dst(handle) == (other_dst));                                     \
	} while (0)

TEST(deflate_goes_there_and_back, doca_compress_create, doca_compress_destroy, doca_compress_as_ctx,
     doca_compress_task_compress_deflate_set_conf, doca_compress_task_compress_deflate_alloc_init,
     doca_compress_task_compress_deflate_as_task, doca_compress_task_compress_deflate_set_src,
     doca_compress_task_compress_deflate_get_src, doca_compress_task_compress_deflate_set_dst,
     doca_compress_task_compress_deflate_get_dst, doca_compress_task_compress_deflate_get_crc_cs,
     doca_compress_task_compress_deflate_get_adler_cs, doca_compress_task_decompress_deflate_set_conf,
     doca_compress_task_decompress_deflate_alloc_init, doca_compress_task_decompress_deflate_as_task,
     doca_compress_task_decompress_deflate_set_src, doca_compress_task_decompress_deflate_get_src,
     doca_compress_task_decompress_deflate_set_dst, doca_compress_task_decompress_deflate_get_dst,
     doca_compress_task_decompress_deflate_get_crc_cs, doca_compress_task_decompress_deflate_get_adler_cs)
{
	struct world world = world_create();
	struct doca_compress *compress = NULL;
	struct doca_compress_task_compress_deflate *deflate = NULL;
	struct doca_compress_task_decompress_deflate *inflate = NULL;
	struct doca_buf *text = world_data(&world, 0, 9), *packed = world_room(&world, ROOM, ROOM);
	struct doca_buf *unpacked = world_room(&world, 2 * ROOM, ROOM), *other = world_data(&world, 3 * ROOM, 1);

	OK(doca_compress_create(world.dev, &compress));
	OK(doca_compress_task_compress_deflate_set_conf(compress, doca_compress_task_compress_deflate_completed,
							doca_compress_task_compress_deflate_failed, 1));
	OK(doca_compress_task_decompress_deflate_set_conf(compress, doca_compress_task_decompress_deflate_completed,
							  doca_compress_task_decompress_deflate_failed, 1));
	world_start(&world, doca_compress_as_ctx(compress));
	memcpy(world.memory, NINE, 9);

	OK(doca_compress_task_compress_deflate_alloc_init(compress, other, other, NO_DATA, &deflate));
	BUFS(compress_deflate, deflate, other, other, text, packed);
	world_run(&world, doca_compress_task_compress_deflate_as_task(deflate), true);
	CHECK(data_length(packed) > 0);
	CHECK(doca_compress_task_compress_deflate_get_crc_cs(deflate) == NINE_CRC32);
	CHECK(doca_compress_task_compress_deflate_get_adler_cs(deflate) == NINE_ADLER32);

	OK(doca_compress_task_decompress_deflate_alloc_init(compress, other, other, NO_DATA, &inflate));
	BUFS(decompress_deflate, inflate, other, other, packed, unpacked);
	world_run(&world, doca_compress_task_decompress_deflate_as_task(inflate), true);
	CHECK(data_length(unpacked) == 9 && memcmp(world.memory + 2 * ROOM, NINE, 9) == 0);
	CHECK(doca_compress_task_decompress_deflate_get_crc_cs(inflate) == NINE_CRC32);
	CHECK(doca_compress_task_decompress_deflate_get_adler_cs(inflate) == NINE_ADLER32);

	doca_task_free(doca_compress_task_compress_deflate_as_task(deflate));
	doca_task_free(doca_compress_task_decompress_deflate_as_task(inflate));
	world_release(text);
	world_release(packed);
	world_release(unpacked);
	world_release(other);
	CHECK(doca_compress_destroy(compress) != DOCA_SUCCESS);
	world_stop(&world, doca_compress_as_ctx(compress));
	OK(doca_compress_destroy(compress));
	world_destroy(&world);
}

TEST(lz4_is_unpacked, doca_compress_task_decompress_lz4_stream_set_conf, doca_compress_task_decompress_lz4_stream_alloc_init,
     doca_compress_task_decompress_lz4_stream_as_task, doca_compress_task_decompress_lz4_stream_set_has_block_checksum,
     doca_compress_task_decompress_lz4_stream_get_has_block_checksum,
     doca_compress_task_decompress_lz4_stream_set_are_blocks_independent,
     doca_compress_task_decompress_lz4_stream_get_are_blocks_independent,
     doca_compress_task_decompress_lz4_stream_set_src, doca_compress_task_decompress_lz4_stream_get_src,
     doca_compress_task_decompress_lz4_stream_set_dst, doca_compress_task_decompress_lz4_stream_get_dst,
     doca_compress_task_decompress_lz4_stream_get_crc_cs, doca_compress_task_decompress_lz4_stream_get_xxh_cs,
     doca_compress_task_decompress_lz4_block_set_conf, doca_compress_task_decompress_lz4_block_alloc_init,
     doca_compress_task_decompress_lz4_block_as_task, doca_compress_task_decompress_lz4_block_set_src,
     doca_compress_task_decompress_lz4_block_get_src, doca_compress_task_decompress_lz4_block_set_dst,
     doca_compress_task_decompress_lz4_block_get_dst, doca_compress_task_decompress_lz4_block_get_crc_cs,
     doca_compress_task_decompress_lz4_block_get_xxh_cs)
{
	/* Nine literals; and, for the stream, the block's length before it. */
	static const uint8_t block[] = {0x90, '1', '2', '3', '4', '5', '6', '7', '8', '9'};
	static const uint8_t length[] = {sizeof(block), 0, 0, 0};
	struct world world = world_create();
	struct doca_compress *compress = NULL;
	struct doca_compress_task_decompress_lz4_stream *stream = NULL;
	struct doca_compress_task_decompress_lz4_block *single = NULL;
	struct doca_buf *blocks = world_data(&world, 0, sizeof(length) + sizeof(block));
	struct doca_buf *one = world_data(&world, sizeof(length), sizeof(block));
	struct doca_buf *first = world_room(&world, ROOM, ROOM), *second = world_room(&world, 2 * ROOM, ROOM);
	struct doca_buf *other = world_data(&world, 3 * ROOM, 1);

	OK(doca_compress_create(world.dev, &compress));
	OK(doca_compress_task_decompress_lz4_stream_set_conf(compress, doca_compress_task_decompress_lz4_stream_completed,
							     doca_compress_task_decompress_lz4_stream_failed, 1));
	OK(doca_compress_task_decompress_lz4_block_set_conf(compress, doca_compress_task_decompress_lz4_block_completed,
							    doca_compress_task_decompress_lz4_block_failed, 1));
	world_start(&world, doca_compress_as_ctx(compress));
	memcpy(world.memory, length, sizeof(length));
	memcpy(world.memory + sizeof(length), block, sizeof(block));

	OK(doca_compress_task_decompress_lz4_stream_alloc_init(compress, 1, 0, other, other, NO_DATA, &stream));
	CHECK(doca_compress_task_decompress_lz4_stream_get_has_block_checksum(stream) == 1);
	CHECK(doca_compress_task_decompress_lz4_stream_get_are_blocks_independent(stream) == 0);
	doca_compress_task_decompress_lz4_stream_set_has_block_checksum(stream, 0);
	doca_compress_task_decompress_lz4_stream_set_are_blocks_independent(stream, 1);
	CHECK(doca_compress_task_decompress_lz4_stream_get_has_block_checksum(stream) == 0);
	CHECK(doca_compress_task_decompress_lz4_stream_get_are_blocks_independent(stream) == 1);
	BUFS(decompress_lz4_stream, stream, other, other, blocks, first);
	world_run(&world, doca_compress_task_decompress_lz4_stream_as_task(stream), true);
	CHECK(data_length(first) == 9 && memcmp(world.memory + ROOM, NINE, 9) == 0);
	CHECK(doca_compress_task_decompress_lz4_stream_get_crc_cs(stream) == NINE_CRC32);
	CHECK(doca_compress_task_decompress_lz4_stream_get_xxh_cs(stream) == NINE_XXH32);

	OK(doca_compress_task_decompress_lz4_block_alloc_init(compress, other, other, NO_DATA, &single));
	BUFS(decompress_lz4_block, single, other, other, one, second);
	world_run(&world, doca_compress_task_decompress_lz4_block_as_task(single), true);
	CHECK(data_length(second) == 9 && memcmp(world.memory + 2 * ROOM, NINE, 9) == 0);
	CHECK(doca_compress_task_decompress_lz4_block_get_crc_cs(single) == NINE_CRC32);
	CHECK(doca_compress_task_decompress_lz4_block_get_xxh_cs(single) == NINE_XXH32);

	doca_task_free(doca_compress_task_decompress_lz4_stream_as_task(stream));
	doca_task_free(doca_compress_task_decompress_lz4_block_as_task(single));
	world_release(blocks);
	world_release(one);
	world_release(first);
	world_release(second);
	world_release(other);
	world_stop(&world, doca_compress_as_ctx(compress));
	OK(doca_compress_destroy(compress));
	world_destroy(&world);
}
