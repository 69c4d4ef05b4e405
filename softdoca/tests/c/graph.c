/* Graphs of DMA tasks and functions. */
#include "world.h"

#include <doca_dma.h>
#include <doca_graph.h>

CALLBACKS(doca_dma_task_memcpy)

struct outcome {
	unsigned int completed;
	unsigned int failed;
	uint64_t last;
};

static void completed(struct doca_graph_instance *instance, union doca_data instance_data, union doca_data graph_data)
{
	struct outcome *outcome = graph_data.ptr;

	CHECK(instance != NULL);
	outcome->completed++;
	outcome->last = instance_data.u64;
}

static void failed(struct doca_graph_instance *instance, union doca_data instance_data, union doca_data graph_data)
{
	struct outcome *outcome = graph_data.ptr;

	CHECK(instance != NULL);
	outcome->failed++;
	outcome->last = instance_data.u64;
}

/* Argument and action of a graph function. */
struct step {
	const uint8_t *memory;
	uint8_t expected;
	unsigned int calls;
	doca_error_t answer;
};

static doca_error_t look(void *cookie)
{
	struct step *step = cookie;

	step->calls++;
	CHECK(step->memory == NULL || *step->memory == step->expected);
	return step->answer;
}

static doca_error_t nothing(void *cookie)
{
	(void)cookie;
	return DOCA_SUCCESS;
}

static struct doca_dma *dma_create(struct world *world)
{
	struct doca_dma *dma;

	OK(doca_dma_create(world->dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, doca_dma_task_memcpy_completed, doca_dma_task_memcpy_failed, 8));
	world_start(world, doca_dma_as_ctx(dma));
	return dma;
}

static void dma_destroy(struct world *world, struct doca_dma *dma)
{
	world_stop(world, doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
}

static struct doca_task *copy(struct world *world, struct doca_dma *dma, size_t from, size_t to)
{
	struct doca_dma_task_memcpy *task = NULL;

	OK(doca_dma_task_memcpy_alloc_init(dma, world_data(world, from, 1), world_room(world, to, 1), NO_DATA, &task));
	return doca_dma_task_memcpy_as_task(task);
}

static void release(struct doca_task *task)
{
	struct doca_dma_task_memcpy *memcpy_task = (struct doca_dma_task_memcpy *)task;
	struct doca_buf *src = (struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(memcpy_task);
	struct doca_buf *dst = doca_dma_task_memcpy_get_dst(memcpy_task);

	doca_task_free(task);
	world_release(src);
	world_release(dst);
}

static struct doca_graph *graph_create(struct world *world, struct outcome *outcome, uint32_t instances)
{
	union doca_data data = {.ptr = outcome};
	struct doca_graph *graph = NULL;

	OK(doca_graph_create(world->pe, &graph));
	OK(doca_graph_set_conf(graph, completed, failed, instances));
	OK(doca_graph_set_user_data(graph, data));
	return graph;
}

static void wait_for(struct world *world, const struct outcome *outcome, unsigned int ended)
{
	while (outcome->completed + outcome->failed < ended)
		(void)doca_pe_progress(world->pe);
}

TEST(a_graph_runs_in_order, doca_graph_create, doca_graph_destroy, doca_graph_set_conf, doca_graph_set_user_data,
     doca_graph_node_create_from_ctx, doca_graph_node_create_from_user, doca_graph_add_dependency, doca_graph_start,
     doca_graph_stop, doca_graph_instance_create, doca_graph_instance_destroy, doca_graph_instance_set_user_data,
     doca_graph_instance_set_ctx_node_data, doca_graph_instance_set_user_node_data, doca_graph_instance_submit)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct outcome outcome = {0, 0, 0};
	struct doca_graph *graph = graph_create(&world, &outcome, 1);
	struct doca_graph_node *first = NULL, *second = NULL, *check = NULL;
	struct doca_graph_instance *instance = NULL, *too_many = NULL;
	struct doca_task *tasks[2] = {copy(&world, dma, 0, 100), copy(&world, dma, 100, 200)};
	struct step step = {.memory = world.memory + 200, .expected = 'x', .calls = 0, .answer = DOCA_SUCCESS};

	/* Created in reverse order of their dependencies. */
	OK(doca_graph_node_create_from_user(graph, look, &check));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &second));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &first));
	OK(doca_graph_add_dependency(graph, second, check));
	OK(doca_graph_add_dependency(graph, first, second));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_graph_add_dependency(graph, check, first));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_instance_create(graph, &instance));
	OK(doca_graph_start(graph));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_destroy(graph));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_add_dependency(graph, first, check));

	OK(doca_graph_instance_create(graph, &instance));
	RETURNS(DOCA_ERROR_NO_MEMORY, doca_graph_instance_create(graph, &too_many));
	REFUSED(doca_graph_instance_submit(instance));
	OK(doca_graph_instance_set_user_data(instance, (union doca_data){.u64 = 7}));
	OK(doca_graph_instance_set_ctx_node_data(instance, first, tasks[0]));
	OK(doca_graph_instance_set_ctx_node_data(instance, second, tasks[1]));
	OK(doca_graph_instance_set_user_node_data(instance, check, &step));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_graph_instance_set_user_node_data(instance, first, &step));
	world.memory[0] = 'x';
	OK(doca_graph_instance_submit(instance));
	RETURNS(DOCA_ERROR_IN_USE, doca_graph_instance_submit(instance));
	RETURNS(DOCA_ERROR_IN_USE, doca_graph_instance_destroy(instance));
	wait_for(&world, &outcome, 1);
	CHECK(outcome.completed == 1 && outcome.last == 7 && step.calls == 1);
	CHECK(world.completed == 0 && world.failed == 0); /* the tasks' own callbacks are not called */

	RETURNS(DOCA_ERROR_IN_USE, doca_graph_stop(graph));
	OK(doca_graph_instance_destroy(instance));
	OK(doca_graph_stop(graph));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_instance_create(graph, &instance));
	OK(doca_graph_destroy(graph));
	release(tasks[0]);
	release(tasks[1]);
	dma_destroy(&world, dma);
	/* An engine with a graph is in use: this one has none any more. */
	world_destroy(&world);
}

TEST(a_graph_fails_with_its_functions, doca_graph_set_conf, doca_graph_instance_submit)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct outcome outcome = {0, 0, 0};
	struct doca_graph *graph = graph_create(&world, &outcome, 1);
	struct doca_graph_node *refuse = NULL, *after = NULL;
	struct doca_graph_instance *instance = NULL;
	struct doca_task *task = copy(&world, dma, 0, 100);
	struct step step = {.memory = NULL, .expected = 0, .calls = 0, .answer = DOCA_ERROR_DRIVER};

	OK(doca_graph_node_create_from_user(graph, look, &refuse));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &after));
	OK(doca_graph_add_dependency(graph, refuse, after));
	OK(doca_graph_start(graph));
	OK(doca_graph_instance_create(graph, &instance));
	OK(doca_graph_instance_set_ctx_node_data(instance, after, task));
	OK(doca_graph_instance_set_user_node_data(instance, refuse, &step));
	world.memory[0] = 'x';
	OK(doca_graph_instance_submit(instance));
	CHECK(step.calls == 0); /* functions run in progress */
	wait_for(&world, &outcome, 1);
	CHECK(outcome.failed == 1 && step.calls == 1 && world.memory[100] == 0);
	/* The same instance is submitted again. */
	step.answer = DOCA_SUCCESS;
	OK(doca_graph_instance_submit(instance));
	wait_for(&world, &outcome, 2);
	CHECK(outcome.completed == 1 && world.memory[100] == 'x');
	OK(doca_graph_instance_destroy(instance));
	OK(doca_graph_stop(graph));
	OK(doca_graph_destroy(graph));
	release(task);
	dma_destroy(&world, dma);
	world_destroy(&world);
}

TEST(a_graph_runs_in_another_graph, doca_graph_node_create_from_graph, doca_graph_instance_set_sub_graph_node_data)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct outcome inner_outcome = {0, 0, 0}, outcome = {0, 0, 0};
	struct doca_graph *inner = graph_create(&world, &inner_outcome, 1);
	struct doca_graph *outer = graph_create(&world, &outcome, 1);
	struct doca_graph_node *node = NULL, *nested = NULL, *check = NULL;
	struct doca_graph_instance *inner_run = NULL, *run = NULL;
	struct doca_task *task = copy(&world, dma, 0, 100);
	struct step step = {.memory = world.memory + 100, .expected = 'x', .calls = 0, .answer = DOCA_SUCCESS};

	OK(doca_graph_node_create_from_ctx(inner, doca_dma_as_ctx(dma), &node));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_node_create_from_graph(outer, inner, &nested));
	OK(doca_graph_start(inner));
	OK(doca_graph_node_create_from_graph(outer, inner, &nested));
	OK(doca_graph_node_create_from_user(outer, look, &check));
	OK(doca_graph_add_dependency(outer, nested, check));
	OK(doca_graph_start(outer));
	OK(doca_graph_instance_create(inner, &inner_run));
	OK(doca_graph_instance_create(outer, &run));
	OK(doca_graph_instance_set_ctx_node_data(inner_run, node, task));
	OK(doca_graph_instance_set_user_node_data(run, check, &step));
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_graph_instance_set_sub_graph_node_data(run, nested, run));
	OK(doca_graph_instance_set_sub_graph_node_data(run, nested, inner_run));
	RETURNS(DOCA_ERROR_IN_USE, doca_graph_instance_destroy(inner_run));
	world.memory[0] = 'x';
	OK(doca_graph_instance_submit(run));
	wait_for(&world, &outcome, 1);
	CHECK(outcome.completed == 1 && step.calls == 1 && inner_outcome.completed == 0);
	OK(doca_graph_instance_destroy(run));
	OK(doca_graph_instance_destroy(inner_run));
	OK(doca_graph_stop(outer));
	OK(doca_graph_destroy(outer));
	OK(doca_graph_stop(inner));
	OK(doca_graph_destroy(inner));
	release(task);
	dma_destroy(&world, dma);
	world_destroy(&world);
}

TEST(graphs_keep_their_data, doca_graph_get_user_data, doca_graph_instance_get_user_data)
{
	struct world world = world_create();
	struct doca_dma *dma = dma_create(&world);
	struct outcome outcome = {0, 0, 0};
	struct doca_graph *graph = graph_create(&world, &outcome, 1);
	struct doca_graph_node *node = NULL;
	struct doca_graph_instance *instance = NULL;
	union doca_data data = {.u64 = 1};

	OK(doca_graph_get_user_data(graph, &data));
	CHECK(data.ptr == &outcome);
	REFUSED(doca_graph_get_user_data(graph, NULL));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &node));
	OK(doca_graph_start(graph));
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_set_user_data(graph, data));
	OK(doca_graph_instance_create(graph, &instance));
	OK(doca_graph_instance_get_user_data(instance, &data));
	CHECK(data.u64 == 0);
	OK(doca_graph_instance_set_user_data(instance, (union doca_data){.u64 = 5}));
	OK(doca_graph_instance_get_user_data(instance, &data));
	CHECK(data.u64 == 5);
	REFUSED(doca_graph_instance_get_user_data(NULL, &data));
	OK(doca_graph_instance_destroy(instance));
	OK(doca_graph_stop(graph));
	OK(doca_graph_destroy(graph));
	dma_destroy(&world, dma);
	world_destroy(&world);
}

TEST(graphs_are_checked_when_they_start, doca_graph_start, doca_graph_node_create_from_user)
{
	struct world world = world_create();
	struct outcome outcome = {0, 0, 0};
	struct doca_graph *graph = graph_create(&world, &outcome, 1);
	struct doca_graph_node *node = NULL;

	OK(doca_graph_node_create_from_user(graph, nothing, &node));
	REFUSED(doca_graph_node_create_from_user(graph, NULL, &node));
	/* There is no context in it. */
	RETURNS(DOCA_ERROR_BAD_STATE, doca_graph_start(graph));
	OK(doca_graph_destroy(graph));
	world_destroy(&world);
}
