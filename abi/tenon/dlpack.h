// tenon/dlpack.h - the DLPack 1.x declarations that this ABI needs.
// Uses an installed dlpack.h of any age and declares what an older one (or none) lacks: Debian 12
// ships 0.6, whose DLTensor is byte-identical to 1.x but which has no DLManagedTensorVersioned.
#ifndef TENON_DLPACK_H
#define TENON_DLPACK_H

#include <stdint.h>

#if defined(__has_include) && !defined(TENON_NO_SYSTEM_DLPACK)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_  // no header installed: the layouts that DLPack has frozen
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLExtDev = 12 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4 } DLDataTypeCode;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
#endif

#ifndef DLPACK_MAJOR_VERSION  // older than 1.0, or none
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 1
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;
#endif

#ifdef __cplusplus
}
static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensorVersioned) == 80, "DLPack layout");
#else
_Static_assert(sizeof(DLTensor) == 48 && sizeof(struct DLManagedTensorVersioned) == 80, "DLPack layout");
#endif
#endif
