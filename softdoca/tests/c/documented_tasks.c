/* Errors that the API pages name for accelerators, graphs and arguments, and that have a condition of their own (see
 * documented_core.c). */
#include "objects.h"

#include <stdarg.h>

CALLBACKS(doca_sha_task_hash)
CALLBACKS(doca_sha_task_partial_hash)
CALLBACKS(doca_aes_gcm_task_encrypt)
CALLBACKS(doca_aes_gcm_task_decrypt)
CALLBACKS(doca_dma_task_memcpy)

TEST(documented_errors_of_hashes, doca_sha_task_hash_alloc_init, doca_sha_task_partial_hash_alloc_init,
     doca_sha_task_partial_hash_set_dst, doca_sha_task_partial_hash_set_algorithm,
     doca_sha_task_partial_hash_set_is_final_buf)
{
	struct world world = world_create();
	struct doca_buf *from = world_data(&world, 0, 64), *to = world_room(&world, 64, 64);
	struct doca_sha *sha;
	struct doca_sha_task_hash *hash, *no_hash;
	struct doca_sha_task_partial_hash *part, *no_part;

	OK(doca_sha_create(world.dev, &sha));
	OK(doca_sha_task_hash_set_conf(sha, doca_sha_task_hash_completed, doca_sha_task_hash_failed, 0));
	OK(doca_sha_task_partial_hash_set_conf(sha, doca_sha_task_partial_hash_completed, doca_sha_task_partial_hash_failed,
					       0));
	DOCUMENTED(BAD_STATE, doca_sha_task_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA, &hash));
	DOCUMENTED(BAD_STATE, doca_sha_task_partial_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA, &part));
	world_start(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_task_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA, &hash));
	DOCUMENTED(NO_MEMORY, doca_sha_task_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA, &no_hash));
	doca_task_free(doca_sha_task_hash_as_task(hash));
	OK(doca_sha_task_partial_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA, &part));
	DOCUMENTED(NO_MEMORY, doca_sha_task_partial_hash_alloc_init(sha, DOCA_SHA_ALGORITHM_SHA256, from, to, NO_DATA,
		   &no_part));
	/* After the first part. */
	{
		union doca_data data = {.ptr = &world};

		OK(doca_ctx_set_user_data(doca_sha_as_ctx(sha), data));
	}
	world_run(&world, doca_sha_task_partial_hash_as_task(part), true);
	DOCUMENTED(BAD_STATE, doca_sha_task_partial_hash_set_dst(part, to));
	DOCUMENTED(BAD_STATE, doca_sha_task_partial_hash_set_algorithm(part, DOCA_SHA_ALGORITHM_SHA512));
	/* While the last part is in flight. */
	OK(doca_sha_task_partial_hash_set_is_final_buf(part));
	OK(doca_task_submit(doca_sha_task_partial_hash_as_task(part)));
	DOCUMENTED(BAD_STATE, doca_sha_task_partial_hash_set_is_final_buf(part));
	while (world.completed < 2)
		(void)doca_pe_progress(world.pe);
	doca_task_free(doca_sha_task_partial_hash_as_task(part));
	world_stop(&world, doca_sha_as_ctx(sha));
	OK(doca_sha_destroy(sha));
	world_release(from);
	world_release(to);
	world_destroy(&world);
}

TEST(documented_errors_of_encryption, doca_aes_gcm_destroy, doca_aes_gcm_task_encrypt_alloc_init,
     doca_aes_gcm_task_decrypt_alloc_init)
{
	struct world world = world_create();
	struct doca_buf *from = world_data(&world, 0, 64), *to = world_room(&world, 64, 128);
	struct doca_aes_gcm *gcm;
	struct doca_aes_gcm_key *key;
	struct doca_aes_gcm_task_encrypt *encrypt, *no_encrypt;
	struct doca_aes_gcm_task_decrypt *decrypt, *no_decrypt;
	static const uint8_t bits[32], iv[12];

	OK(doca_aes_gcm_create(world.dev, &gcm));
	OK(doca_aes_gcm_key_create(gcm, bits, DOCA_AES_GCM_KEY_256, &key));
	OK(doca_aes_gcm_task_encrypt_set_conf(gcm, doca_aes_gcm_task_encrypt_completed, doca_aes_gcm_task_encrypt_failed,
					      1));
	OK(doca_aes_gcm_task_decrypt_set_conf(gcm, doca_aes_gcm_task_decrypt_completed, doca_aes_gcm_task_decrypt_failed,
					      1));
	DOCUMENTED(BAD_STATE, doca_aes_gcm_task_encrypt_alloc_init(gcm, from, to, key, iv, sizeof(iv), 16, 0, NO_DATA,
		   &encrypt));
	DOCUMENTED(BAD_STATE, doca_aes_gcm_task_decrypt_alloc_init(gcm, from, to, key, iv, sizeof(iv), 16, 0, NO_DATA,
		   &decrypt));
	world_start(&world, doca_aes_gcm_as_ctx(gcm));
	OK(doca_aes_gcm_task_encrypt_alloc_init(gcm, from, to, key, iv, sizeof(iv), 16, 0, NO_DATA, &encrypt));
	DOCUMENTED(NO_MEMORY, doca_aes_gcm_task_encrypt_alloc_init(gcm, from, to, key, iv, sizeof(iv), 16, 0, NO_DATA,
		   &no_encrypt));
	OK(doca_aes_gcm_task_decrypt_alloc_init(gcm, from, to, key, iv, sizeof(iv), 16, 0, NO_DATA, &decrypt));
	DOCUMENTED(NO_MEMORY, doca_aes_gcm_task_decrypt_alloc_init(gcm, from, to, key, iv, sizeof(iv), 16, 0, NO_DATA,
		   &no_decrypt));
	doca_task_free(doca_aes_gcm_task_encrypt_as_task(encrypt));
	doca_task_free(doca_aes_gcm_task_decrypt_as_task(decrypt));
	world_stop(&world, doca_aes_gcm_as_ctx(gcm));
	DOCUMENTED(IN_USE, doca_aes_gcm_destroy(gcm));
	OK(doca_aes_gcm_key_destroy(key));
	OK(doca_aes_gcm_destroy(gcm));
	world_release(from);
	world_release(to);
	world_destroy(&world);
}

static void ended(struct doca_graph_instance *instance, union doca_data instance_data, union doca_data graph_data)
{
	(void)instance;
	(void)instance_data;
	(*(unsigned int *)graph_data.ptr)++;
}

static doca_error_t look(void *cookie)
{
	(void)cookie;
	return DOCA_SUCCESS;
}

static struct doca_graph *graph_of(struct world *world, unsigned int *count)
{
	struct doca_graph *graph;
	union doca_data data = {.ptr = count};

	OK(doca_graph_create(world->pe, &graph));
	OK(doca_graph_set_conf(graph, ended, ended, 1));
	OK(doca_graph_set_user_data(graph, data));
	return graph;
}

TEST(documented_errors_of_graphs, doca_graph_destroy, doca_graph_start, doca_graph_stop, doca_graph_add_dependency,
     doca_graph_instance_create, doca_graph_instance_destroy, doca_graph_instance_submit,
     doca_graph_instance_set_user_data, doca_graph_instance_set_ctx_node_data, doca_graph_instance_set_user_node_data,
     doca_graph_instance_set_sub_graph_node_data, doca_graph_node_create_from_graph)
{
	struct world world = world_create();
	unsigned int count = 0;
	struct doca_graph *graph = graph_of(&world, &count), *empty = graph_of(&world, &count), *inner = graph_of(&world, &count);
	struct doca_graph_node *ctx_node, *user_node, *graph_node, *inner_node, *foreign, *node;
	struct doca_graph_instance *instance, *inner_instance, *too_many;
	struct doca_dma *dma;
	struct doca_dma_task_memcpy *task, *inner_task;
	struct doca_buf *from = world_data(&world, 0, 8), *to = world_room(&world, 64, 64), *inner_to = world_room(&world, 128, 64);

	OK(doca_dma_create(world.dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 2));
	world_start(&world, doca_dma_as_ctx(dma));
	OK(doca_dma_task_memcpy_alloc_init(dma, from, to, NO_DATA, &task));
	OK(doca_dma_task_memcpy_alloc_init(dma, from, inner_to, NO_DATA, &inner_task));

	DOCUMENTED(BAD_STATE, doca_graph_start(empty));
	DOCUMENTED(BAD_STATE, doca_graph_node_create_from_graph(graph, inner, &graph_node));
	OK(doca_graph_node_create_from_ctx(inner, doca_dma_as_ctx(dma), &inner_node));
	OK(doca_graph_start(inner));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &ctx_node));
	OK(doca_graph_node_create_from_user(graph, look, &user_node));
	OK(doca_graph_node_create_from_graph(graph, inner, &graph_node));
	OK(doca_graph_node_create_from_user(empty, look, &foreign));
	OK(doca_graph_add_dependency(graph, ctx_node, user_node));
	DOCUMENTED(NOT_PERMITTED, doca_graph_add_dependency(graph, user_node, ctx_node));
	DOCUMENTED(NOT_PERMITTED, doca_graph_node_create_from_graph(graph, graph, &node));
	DOCUMENTED(BAD_STATE, doca_graph_instance_create(graph, &instance));
	OK(doca_graph_start(graph));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_start(graph));
	DOCUMENTED(BAD_STATE, doca_graph_set_conf(graph, ended, ended, 2));
	DOCUMENTED(BAD_STATE, doca_graph_destroy(graph));
	OK(doca_graph_instance_create(graph, &instance));
	OK(doca_graph_instance_create(inner, &inner_instance));
	DOCUMENTED(NO_MEMORY, doca_graph_instance_create(graph, &too_many));
	DOCUMENTED(IN_USE, doca_graph_stop(graph));
	DOCUMENTED(NOT_PERMITTED, doca_graph_instance_set_ctx_node_data(instance, foreign,
		   doca_dma_task_memcpy_as_task(task)));
	DOCUMENTED(NOT_PERMITTED, doca_graph_instance_set_user_node_data(instance, foreign, &count));
	DOCUMENTED(NOT_PERMITTED, doca_graph_instance_set_sub_graph_node_data(instance, foreign, inner_instance));
	OK(doca_graph_instance_set_ctx_node_data(inner_instance, inner_node, doca_dma_task_memcpy_as_task(inner_task)));
	OK(doca_graph_instance_set_ctx_node_data(instance, ctx_node, doca_dma_task_memcpy_as_task(task)));
	OK(doca_graph_instance_set_user_node_data(instance, user_node, &count));
	OK(doca_graph_instance_set_sub_graph_node_data(instance, graph_node, inner_instance));
	OK(doca_graph_instance_submit(instance));
	DOCUMENTED(IN_USE, doca_graph_instance_submit(instance));
	DOCUMENTED(IN_USE, doca_graph_instance_destroy(instance));
	DOCUMENTED(IN_USE, doca_graph_instance_set_user_data(instance, NO_DATA));
	DOCUMENTED(BAD_STATE, doca_graph_instance_set_ctx_node_data(instance, ctx_node, doca_dma_task_memcpy_as_task(task)));
	DOCUMENTED(BAD_STATE, doca_graph_instance_set_user_node_data(instance, user_node, &count));
	DOCUMENTED(BAD_STATE, doca_graph_instance_set_sub_graph_node_data(instance, graph_node, inner_instance));
	while (count == 0)
		(void)doca_pe_progress(world.pe);
	exit(EXIT_SUCCESS);
}

static doca_error_t take(void *value, void *config)
{
	(void)value;
	(void)config;
	return DOCA_SUCCESS;
}

static doca_error_t take_log(enum doca_log_level level, const char *format, va_list arguments)
{
	(void)level;
	(void)format;
	(void)arguments;
	return DOCA_SUCCESS;
}

static doca_error_t run(void *config)
{
	(void)config;
	return DOCA_SUCCESS;
}

static struct doca_argp_param *param_of(const char *name)
{
	struct doca_argp_param *param;

	OK(doca_argp_param_create(&param));
	doca_argp_param_set_long_name(param, name);
	doca_argp_param_set_description(param, "What it is for");
	doca_argp_param_set_callback(param, take);
	doca_argp_param_set_type(param, DOCA_ARGP_TYPE_STRING);
	return param;
}

static struct doca_argp_cmd *cmd_of(const char *name)
{
	struct doca_argp_cmd *cmd;

	OK(doca_argp_cmd_create(&cmd));
	doca_argp_cmd_set_name(cmd, name);
	doca_argp_cmd_set_description(cmd, "What it does");
	doca_argp_cmd_set_callback(cmd, run);
	return cmd;
}

TEST(documented_errors_of_arguments, doca_argp_init, doca_argp_start, doca_argp_destroy, doca_argp_register_param,
     doca_argp_register_cmd, doca_argp_register_version_callback, doca_argp_register_validation_callback,
     doca_argp_register_logger_callback, doca_argp_disable_logger_callback, doca_argp_param_create,
     doca_argp_param_destroy, doca_argp_cmd_create, doca_argp_cmd_destroy, doca_argp_cmd_register_param,
     doca_argp_cmd_register_cmd)
{
	char *no_arguments[] = {"program"}, *unknown[] = {"program", "--unknown"};
	char *missing[] = {"program", "--json", "/nonexistent/file.json"};
	struct doca_argp_param *param, *nameless, *inner;
	struct doca_argp_cmd *cmd, *no_name, *inner_cmd;
	int config;

	DOCUMENTED(BAD_STATE, doca_argp_param_create(&param));
	DOCUMENTED(BAD_STATE, doca_argp_cmd_create(&cmd));
	/* The name is optional, but a name is text. */
	DOCUMENTED(INVALID_VALUE, doca_argp_init("\xff", &config));
	OK(doca_argp_init("program", &config));
	param = param_of("given");
	nameless = param_of("later");
	cmd = cmd_of("run");
	OK(doca_argp_destroy());
	DOCUMENTED(BAD_STATE, doca_argp_register_version_callback(take));
	DOCUMENTED(BAD_STATE, doca_argp_register_validation_callback(run));
	DOCUMENTED(BAD_STATE, doca_argp_register_logger_callback(take_log));
	DOCUMENTED(BAD_STATE, doca_argp_disable_logger_callback());
	DOCUMENTED(BAD_STATE, doca_argp_start(1, no_arguments));
	DOCUMENTED(BAD_STATE, doca_argp_destroy());

	OK(doca_argp_init("program", &config));
	DOCUMENTED(BAD_STATE, doca_argp_init("program", &config));
	param = param_of("given");
	OK(doca_argp_register_param(param));
	DOCUMENTED(BAD_STATE, doca_argp_register_param(param));
	DOCUMENTED(BAD_STATE, doca_argp_param_destroy(param));
	OK(doca_argp_param_create(&nameless));
	DOCUMENTED(INITIALIZATION, doca_argp_register_param(nameless));
	cmd = cmd_of("run");
	inner = param_of("inner");
	inner_cmd = cmd_of("part");
	OK(doca_argp_cmd_create(&no_name));
	OK(doca_argp_cmd_register_param(cmd, inner));
	DOCUMENTED(BAD_STATE, doca_argp_cmd_register_param(cmd, inner));
	DOCUMENTED(INITIALIZATION, doca_argp_cmd_register_param(cmd, nameless));
	OK(doca_argp_cmd_register_cmd(cmd, inner_cmd));
	DOCUMENTED(BAD_STATE, doca_argp_cmd_register_cmd(cmd, inner_cmd));
	DOCUMENTED(INITIALIZATION, doca_argp_cmd_register_cmd(cmd, no_name));
	DOCUMENTED(INITIALIZATION, doca_argp_register_cmd(no_name));
	OK(doca_argp_register_cmd(cmd));
	DOCUMENTED(BAD_STATE, doca_argp_register_cmd(cmd));
	DOCUMENTED(BAD_STATE, doca_argp_cmd_destroy(cmd));
	OK(doca_argp_register_logger_callback(take_log));
	DOCUMENTED(ALREADY_EXIST, doca_argp_register_logger_callback(take_log));
	DOCUMENTED(NOT_SUPPORTED, doca_argp_start(2, unknown));
	DOCUMENTED(IO_FAILED, doca_argp_start(3, missing));
	DOCUMENTED(INVALID_VALUE, doca_argp_start(0, no_arguments));
	OK(doca_argp_destroy());
}
