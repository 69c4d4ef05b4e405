/* References to bufs, lists of them, and copies. */
#include "world.h"

static unsigned int references(const struct doca_buf *buf)
{
	uint16_t count = UINT16_MAX;

	OK(doca_buf_get_refcount(buf, &count));
	return count;
}

TEST(references_are_counted, doca_buf_inc_refcount, doca_buf_get_refcount, doca_buf_dec_refcount)
{
	struct world world = world_create();
	struct doca_buf *buf = world_data(&world, 0, 100);
	uint16_t before = 0;
	uint32_t free_bufs = 0;

	CHECK(references(buf) == 1);
	OK(doca_buf_inc_refcount(buf, &before));
	CHECK(before == 1 && references(buf) == 2);
	OK(doca_buf_inc_refcount(buf, NULL));
	CHECK(references(buf) == 3);
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_buf_dec_refcount(buf, NULL));
	CHECK(references(buf) == 1);
	OK(doca_buf_inventory_get_num_free_elements(world.inventory, &free_bufs));
	CHECK(free_bufs == 63);
	world_release(buf);
	OK(doca_buf_inventory_get_num_free_elements(world.inventory, &free_bufs));
	CHECK(free_bufs == 64);
	REFUSED(doca_buf_inc_refcount(NULL, NULL));
	REFUSED(doca_buf_get_refcount(NULL, &before));
	world_destroy(&world);
}

static bool is_first(const struct doca_buf *buf)
{
	uint8_t answer = 2;

	OK(doca_buf_is_first_in_list(buf, &answer));
	CHECK(answer < 2);
	return answer == 1;
}

static bool is_last(const struct doca_buf *buf)
{
	uint8_t answer = 2;

	OK(doca_buf_is_last_in_list(buf, &answer));
	CHECK(answer < 2);
	return answer == 1;
}

static bool is_in_list(const struct doca_buf *buf)
{
	uint8_t answer = 2;

	OK(doca_buf_is_in_list(buf, &answer));
	CHECK(answer < 2);
	return answer == 1;
}

static unsigned int length(const struct doca_buf *buf)
{
	uint32_t count = 0;

	OK(doca_buf_get_list_len(buf, &count));
	return count;
}

TEST(lists_are_made_and_taken_apart, doca_buf_chain_list_tail, doca_buf_unchain_list, doca_buf_get_list_len,
     doca_buf_get_last_in_list, doca_buf_is_first_in_list, doca_buf_is_last_in_list, doca_buf_is_in_list)
{
	struct world world = world_create();
	struct doca_buf *a = world_data(&world, 0, 10), *b = world_data(&world, 10, 10), *c = world_data(&world, 20, 10);
	struct doca_buf *last = NULL;

	CHECK(is_first(a) && is_last(a) && !is_in_list(a) && length(a) == 1);
	OK(doca_buf_chain_list_tail(a, a, b));
	/* b is the tail now. */
	REFUSED(doca_buf_chain_list_tail(a, a, c));
	OK(doca_buf_chain_list_tail(a, b, c));
	CHECK(length(a) == 3 && is_first(a) && !is_last(a) && is_in_list(a));
	CHECK(!is_first(b) && !is_last(b) && is_in_list(b));
	CHECK(!is_first(c) && is_last(c) && is_in_list(c));
	OK(doca_buf_get_last_in_list(a, &last));
	CHECK(last == c);
	uint32_t count = 0;
	RETURNS(DOCA_ERROR_NOT_PERMITTED, doca_buf_get_list_len(b, &count));

	OK(doca_buf_unchain_list(a, b));
	CHECK(length(a) == 1 && length(b) == 2 && !is_in_list(a) && is_first(b));
	OK(doca_buf_get_last_in_list(a, &last));
	CHECK(last == a);
	REFUSED(doca_buf_unchain_list(a, c));
	world_release(a);
	world_release(b); /* and c with it */
	world_destroy(&world);
}

TEST(data_gets_another_length, doca_buf_set_data_len)
{
	struct world world = world_create();
	struct doca_buf *buf = world_room(&world, 0, 100);

	OK(doca_buf_set_data_len(buf, 60));
	CHECK(data_length(buf) == 60);
	REFUSED(doca_buf_set_data_len(buf, MEMORY_SIZE + 1));
	CHECK(data_length(buf) == 60);
	world_release(buf);
	world_destroy(&world);
}

TEST(bufs_are_copied, doca_buf_inventory_buf_dup)
{
	struct world world = world_create();
	struct doca_buf *buf = world_data(&world, 100, 50), *next = world_data(&world, 200, 7);
	struct doca_buf *copy = NULL;
	void *head = NULL;

	OK(doca_buf_chain_list(buf, next));
	OK(doca_buf_inventory_buf_dup(world.inventory, buf, &copy));
	CHECK(copy != buf && data_length(copy) == 50 && length(copy) == 2);
	OK(doca_buf_get_head(copy, &head));
	CHECK(head == world.memory + 100);
	REFUSED(doca_buf_inventory_buf_dup(world.inventory, NULL, &copy));
	world_release(buf);
	CHECK(data_length(copy) == 50); /* it is a buf of its own */
	world_release(copy);
	world_destroy(&world);
}

TEST(inventories_grow_and_tell_their_size, doca_buf_inventory_expand, doca_buf_inventory_get_num_elements,
     doca_buf_inventory_get_num_free_elements, doca_buf_inventory_set_user_data, doca_buf_inventory_get_user_data)
{
	struct world world = world_create();
	struct doca_buf *buf = world_data(&world, 0, 10);
	uint32_t all = 0, free_bufs = 0;
	union doca_data data = {.u64 = 5};

	OK(doca_buf_inventory_get_num_elements(world.inventory, &all));
	OK(doca_buf_inventory_get_num_free_elements(world.inventory, &free_bufs));
	CHECK(all == 64 && free_bufs == 63);
	OK(doca_buf_inventory_expand(world.inventory, 10));
	OK(doca_buf_inventory_get_num_elements(world.inventory, &all));
	OK(doca_buf_inventory_get_num_free_elements(world.inventory, &free_bufs));
	CHECK(all == 74 && free_bufs == 73);
	REFUSED(doca_buf_inventory_get_num_elements(NULL, &all));
	OK(doca_buf_inventory_get_user_data(world.inventory, &data));
	CHECK(data.u64 == 0);
	OK(doca_buf_inventory_set_user_data(world.inventory, (union doca_data){.u64 = 9}));
	OK(doca_buf_inventory_get_user_data(world.inventory, &data));
	CHECK(data.u64 == 9);
	world_release(buf);
	world_destroy(&world);
}
