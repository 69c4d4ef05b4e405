/* Devices by their PCI addresses. */
#ifndef DEVICES_H
#define DEVICES_H

#include "check.h"

#include <doca_dev.h>

static inline struct doca_dev *open_device(const char *address)
{
	struct doca_devinfo **list;
	uint32_t count;
	struct doca_dev *device = NULL;

	CHECK(doca_devinfo_create_list(&list, &count));
	for (uint32_t i = 0; i < count && device == NULL; i++) {
		uint8_t equal = 0;

		CHECK(doca_devinfo_is_equal_pci_addr(list[i], address, &equal));
		if (equal)
			CHECK(doca_dev_open(list[i], &device));
	}
	CHECK(doca_devinfo_destroy_list(list));
	if (device == NULL) {
		fprintf(stderr, "there is no device %s\n", address);
		exit(EXIT_FAILURE);
	}
	return device;
}

static inline struct doca_dev_rep *open_representor(struct doca_dev *device, const char *address)
{
	struct doca_devinfo_rep **list;
	uint32_t count;
	struct doca_dev_rep *representor = NULL;

	CHECK(doca_devinfo_rep_create_list(device, DOCA_DEVINFO_REP_FILTER_NET, &list, &count));
	for (uint32_t i = 0; i < count && representor == NULL; i++) {
		uint8_t equal = 0;

		CHECK(doca_devinfo_rep_is_equal_pci_addr(list[i], address, &equal));
		if (equal)
			CHECK(doca_dev_rep_open(list[i], &representor));
	}
	CHECK(doca_devinfo_rep_destroy_list(list));
	if (representor == NULL) {
		fprintf(stderr, "the device has no representor %s\n", address);
		exit(EXIT_FAILURE);
	}
	return representor;
}

#endif
