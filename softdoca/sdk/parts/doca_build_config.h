/* Side that programs are built for. The DPU's pkg-config files define DOCA_ARCH_DPU; everything else is a host. */
#ifndef DOCA_ARCH_DPU
#ifndef DOCA_ARCH_HOST
#define DOCA_ARCH_HOST
#endif
#endif

#if defined(__x86_64__)
#define DOCA_ARCH_X86
#elif defined(__aarch64__)
#define DOCA_ARCH_ARM
#endif
