/* Errors, version, devices. */
#define _GNU_SOURCE
#include "world.h"

#include <doca_log.h>
#include <doca_version.h>

#include <sys/wait.h>
#include <unistd.h>

TEST(errors_have_names, doca_error_get_name, doca_error_get_descr)
{
	CHECK(strcmp(doca_error_get_name(DOCA_ERROR_AGAIN), "DOCA_ERROR_AGAIN") == 0);
	CHECK(strlen(doca_error_get_descr(DOCA_ERROR_AGAIN)) > 5);
	CHECK(strcmp(doca_error_get_descr(DOCA_ERROR_AGAIN), doca_error_get_descr(DOCA_ERROR_FULL)) != 0);
}

TEST(versions_are_those_of_the_headers, doca_version, doca_version_runtime)
{
	CHECK(strcmp(doca_version(), DOCA_VERSION_STRING) == 0);
	CHECK(strcmp(doca_version_runtime(), DOCA_VERSION_STRING) == 0);
}

TEST(versions_are_those_that_the_environment_names, doca_version, doca_version_runtime)
{
	CHECK(setenv("SOFTDOCA_API", "3.2", 1) == 0);
	CHECK(strcmp(doca_version_runtime(), "3.2.0") == 0 && strcmp(doca_version(), "3.2.0") == 0);
}

TEST(devices_are_listed_and_opened, doca_devinfo_create_list, doca_devinfo_destroy_list, doca_dev_open, doca_dev_close,
     doca_dev_as_devinfo)
{
	struct doca_devinfo **list = NULL;
	uint32_t count = 0;
	struct doca_dev *dev = NULL;

	REFUSED(doca_devinfo_create_list(NULL, &count));
	OK(doca_devinfo_create_list(&list, &count));
	CHECK(count >= 2 && list != NULL);
	REFUSED(doca_dev_open(list[0], NULL));
	OK(doca_dev_open(list[0], &dev));
	CHECK(doca_dev_as_devinfo(dev) != NULL);
	OK(doca_devinfo_destroy_list(list));
	REFUSED(doca_devinfo_destroy_list(NULL));
	OK(doca_dev_close(dev));
	/* Closed, and not reported at exit. */
	OK(doca_dev_close(NULL));
}

/* Report at exit of a device that was opened, and closed or not. */
static bool leaks(bool close_it)
{
	char text[4096];
	ssize_t length;
	int ends[2], status;
	pid_t child;

	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct doca_dev *dev;

		CHECK(setenv("SOFTDOCA_CHECK", "1", 1) == 0);
		CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
		dev = world_open(DPU_DEVICE);
		if (close_it)
			OK(doca_dev_close(dev));
		exit(EXIT_SUCCESS);
	}
	close(ends[1]);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	length = read(ends[0], text, sizeof(text) - 1);
	CHECK(length >= 0);
	text[length] = '\0';
	close(ends[0]);
	return strstr(text, "device") != NULL;
}

TEST(closed_devices_do_not_leak, doca_dev_close)
{
	CHECK(leaks(false));
	CHECK(!leaks(true));
}

TEST(devices_have_names, doca_devinfo_get_pci_addr_str, doca_devinfo_is_equal_pci_addr, doca_devinfo_get_iface_name,
     doca_devinfo_get_ibdev_name, doca_devinfo_get_pci_func_type, doca_dev_as_devinfo)
{
	struct doca_dev *dev = world_open(DPU_DEVICE);
	const struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	char address[DOCA_DEVINFO_PCI_ADDR_SIZE] = "", name[DOCA_DEVINFO_IFACE_NAME_SIZE] = "";
	enum doca_pci_func_type type = DOCA_PCI_FUNC_TYPE_SF;
	struct doca_log_backend *backend;
	FILE *log = tmpfile();
	uint8_t equal = 2;

	CHECK(log != NULL);
	OK(doca_devinfo_get_pci_addr_str(info, address));
	CHECK(strcmp(address, DPU_DEVICE) == 0);
	OK(doca_devinfo_is_equal_pci_addr(info, "03:00.0", &equal));
	CHECK(equal == 1);
	OK(doca_devinfo_is_equal_pci_addr(info, HOST_DEVICE, &equal));
	CHECK(equal == 0);
	/* Programs try a name as an address first: it is refused, but not logged as an error. */
	OK(doca_log_backend_create_with_file_sdk(log, &backend));
	REFUSED(doca_devinfo_is_equal_pci_addr(info, "mlx5_1", &equal));
	CHECK(fflush(log) == 0 && ftell(log) == 0);
	OK(doca_devinfo_get_ibdev_name(info, name, DOCA_DEVINFO_IBDEV_NAME_SIZE));
	CHECK(strcmp(name, "mlx5_0") == 0);
	name[0] = '\0';
	OK(doca_devinfo_get_iface_name(info, name, sizeof(name)));
	CHECK(name[0] != '\0');
	OK(doca_devinfo_get_pci_func_type(info, &type));
	CHECK(type == DOCA_PCI_FUNC_TYPE_PF);
	OK(doca_dev_close(dev));
}

TEST(sub_functions_have_an_index, doca_devinfo_get_sf_index)
{
	char path[] = "/tmp/softdoca-topology-XXXXXX";
	FILE *file = fdopen(mkstemp(path), "w");
	struct doca_devinfo **list;
	uint32_t count, index = 0;

	CHECK(file != NULL);
	CHECK(fputs("version = 1\n"
		    "[[device]]\npci = \"03:00.0\"\nibdev = \"mlx5_0\"\nfunction = \"sf\"\nsf-index = 42\n",
		    file) >= 0);
	CHECK(fclose(file) == 0);
	CHECK(setenv("SOFTDOCA_TOPOLOGY", path, 1) == 0);
	OK(doca_devinfo_create_list(&list, &count));
	CHECK(unlink(path) == 0);
	CHECK(count == 1);
	OK(doca_devinfo_get_sf_index(list[0], &index));
	CHECK(index == 42);
	OK(doca_devinfo_destroy_list(list));
}

TEST(representors_are_listed_and_opened, doca_devinfo_rep_create_list, doca_devinfo_rep_destroy_list, doca_dev_rep_open,
     doca_dev_rep_close, doca_devinfo_rep_cap_is_filter_net_supported, doca_devinfo_rep_get_vuid,
     doca_devinfo_rep_get_pci_addr_str, doca_devinfo_rep_is_equal_pci_addr)
{
	struct doca_dev *dev = world_open(DPU_DEVICE);
	struct doca_devinfo_rep **list = NULL;
	struct doca_dev_rep *rep = NULL;
	char address[DOCA_DEVINFO_REP_PCI_ADDR_SIZE] = "", vuid[DOCA_DEVINFO_REP_VUID_SIZE] = "";
	uint8_t answer = 2;
	uint32_t count = 0;

	OK(doca_devinfo_rep_cap_is_filter_net_supported(doca_dev_as_devinfo(dev), &answer));
	CHECK(answer == 1);
	OK(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &count));
	CHECK(count == 1 && list != NULL);
	OK(doca_devinfo_rep_get_pci_addr_str(list[0], address));
	CHECK(strcmp(address, HOST_DEVICE) == 0);
	OK(doca_devinfo_rep_is_equal_pci_addr(list[0], DPU_DEVICE, &answer));
	CHECK(answer == 0);
	OK(doca_devinfo_rep_is_equal_pci_addr(list[0], "3b:00.0", &answer));
	CHECK(answer == 1);
	OK(doca_devinfo_rep_get_vuid(list[0], vuid, sizeof(vuid)));
	CHECK(vuid[0] != '\0');
	OK(doca_dev_rep_open(list[0], &rep));
	CHECK(rep != NULL);
	OK(doca_devinfo_rep_destroy_list(list));
	REFUSED(doca_devinfo_rep_destroy_list(NULL));
	OK(doca_dev_rep_close(rep));
	REFUSED(doca_dev_rep_close(NULL));
	OK(doca_dev_close(dev));
}
