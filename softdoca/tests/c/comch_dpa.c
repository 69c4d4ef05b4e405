/* Functions for a DPA: not supported, and NULL is refused. */
#include "comch.h"

static char object;

/* No function follows the pointer. */
#define COMPLETION ((struct doca_comch_consumer_completion *)(void *)&object)
#define CONSUMER ((struct doca_comch_consumer *)(void *)&object)
#define PRODUCER ((struct doca_comch_producer *)(void *)&object)

TEST(there_is_no_dpa, doca_comch_consumer_completion_create, doca_comch_consumer_completion_destroy,
     doca_comch_consumer_completion_start, doca_comch_consumer_completion_stop,
     doca_comch_consumer_completion_set_max_num_recv, doca_comch_consumer_completion_get_max_num_recv,
     doca_comch_consumer_completion_set_max_num_consumers, doca_comch_consumer_completion_get_max_num_consumers,
     doca_comch_consumer_completion_set_imm_data_len, doca_comch_consumer_completion_get_imm_data_len,
     doca_comch_consumer_completion_set_dpa_thread, doca_comch_consumer_completion_get_dpa_handle,
     doca_comch_consumer_get_dpa_handle, doca_comch_consumer_set_completion, doca_comch_consumer_set_dev_max_num_recv,
     doca_comch_producer_dpa_completion_attach, doca_comch_producer_get_dpa_handle,
     doca_comch_producer_set_dev_max_num_send)
{
	struct doca_comch_consumer_completion *created = NULL;

	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_create(&created));
	REFUSED(doca_comch_consumer_completion_create(NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_destroy(COMPLETION));
	REFUSED(doca_comch_consumer_completion_destroy(NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_start(COMPLETION));
	REFUSED(doca_comch_consumer_completion_start(NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_stop(COMPLETION));
	REFUSED(doca_comch_consumer_completion_stop(NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_set_max_num_recv(COMPLETION, 1));
	REFUSED(doca_comch_consumer_completion_set_max_num_recv(NULL, 1));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_get_max_num_recv(COMPLETION, NULL));
	REFUSED(doca_comch_consumer_completion_get_max_num_recv(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_set_max_num_consumers(COMPLETION, 1));
	REFUSED(doca_comch_consumer_completion_set_max_num_consumers(NULL, 1));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_get_max_num_consumers(COMPLETION, NULL));
	REFUSED(doca_comch_consumer_completion_get_max_num_consumers(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_set_imm_data_len(COMPLETION, 1));
	REFUSED(doca_comch_consumer_completion_set_imm_data_len(NULL, 1));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_get_imm_data_len(COMPLETION, NULL));
	REFUSED(doca_comch_consumer_completion_get_imm_data_len(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_set_dpa_thread(COMPLETION, NULL));
	REFUSED(doca_comch_consumer_completion_set_dpa_thread(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_completion_get_dpa_handle(COMPLETION, NULL));
	REFUSED(doca_comch_consumer_completion_get_dpa_handle(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_get_dpa_handle(CONSUMER, NULL));
	REFUSED(doca_comch_consumer_get_dpa_handle(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_set_completion(CONSUMER, NULL, 1));
	REFUSED(doca_comch_consumer_set_completion(NULL, NULL, 1));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_consumer_set_dev_max_num_recv(CONSUMER, 1));
	REFUSED(doca_comch_consumer_set_dev_max_num_recv(NULL, 1));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_producer_dpa_completion_attach(PRODUCER, NULL));
	REFUSED(doca_comch_producer_dpa_completion_attach(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_producer_get_dpa_handle(PRODUCER, NULL));
	REFUSED(doca_comch_producer_get_dpa_handle(NULL, NULL));
	RETURNS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_producer_set_dev_max_num_send(PRODUCER, 1));
	REFUSED(doca_comch_producer_set_dev_max_num_send(NULL, 1));
}
