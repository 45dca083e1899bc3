//! Host memory on a NUMA node, by the driver's virtual memory management: physical memory of a node, mapped at an address for host
//! and device, in pages of the granularity that the driver states (2 MiB where pinned memory has 4 KiB).

use std::ffi::c_int;

use cudarc::driver::sys;

use super::api::Cuda;
use crate::driver::{Address, Outcome};
use crate::library::call;

const HOST: sys::CUmemLocationType = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;

/// Allocates at least `bytes` on the node nearest `device`; returns their address, the same for both, and their number.
pub(super) fn allocate(cuda: &Cuda, device: sys::CUdevice, bytes: usize) -> Outcome<(Address, usize)> {
    let node = nearest(cuda, device);
    let properties = sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: sys::CUmemLocation { type_: HOST, id: node },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    let recommended = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    let (mut granularity, mut handle) = (0, 0);
    // SAFETY: it reads the properties and writes a number.
    unsafe { call!(cuda, cuMemGetAllocationGranularity(&mut granularity, &properties, recommended)) }?;
    let bytes = bytes.next_multiple_of(granularity.max(1));
    // SAFETY: as above, and a handle, which is released below.
    let created = unsafe { call!(cuda, cuMemCreate(&mut handle, bytes, &properties, 0)) };
    created.map_err(|failure| failure.about(format_args!("{bytes} bytes of host memory on NUMA node {node}")))?;
    let mapped = map(cuda, handle, (bytes, granularity), [device, node]);
    // SAFETY: the handle is this function's own. A mapping keeps the memory.
    let released = unsafe { call!(cuda, cuMemRelease(handle)) };
    let address = mapped?;
    if let Err(failure) = released {
        let _ = free(cuda, address, bytes);
        return Err(failure);
    }
    Ok((address, bytes))
}

/// The node nearest a device; the first one where the driver does not say.
fn nearest(cuda: &Cuda, device: sys::CUdevice) -> c_int {
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
    let mut node = 0;
    // SAFETY: it writes a number.
    let status = unsafe { call!(cuda, cuDeviceGetAttribute(&mut node, attribute, device)) };
    status.map_or(0, |()| node.max(0))
}

/// Maps memory for the device and the host's node.
fn map(
    cuda: &Cuda,
    handle: sys::CUmemGenericAllocationHandle,
    (bytes, granularity): (usize, usize),
    [device, node]: [c_int; 2],
) -> Outcome<Address> {
    let access = |type_, id| sys::CUmemAccessDesc {
        location: sys::CUmemLocation { type_, id },
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let users = [access(sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device), access(HOST, node)];
    let mut address = 0;
    // SAFETY: it writes an address; the range is this function's own from here on.
    unsafe { call!(cuda, cuMemAddressReserve(&mut address, bytes, granularity, 0, 0)) }?;
    // SAFETY: the range is reserved, and as large as the memory.
    let mapped = unsafe { call!(cuda, cuMemMap(address, bytes, 0, handle, 0)) };
    mapped.inspect_err(|_| {
        // SAFETY: nothing is mapped there.
        let _ = unsafe { call!(cuda, cuMemAddressFree(address, bytes)) };
    })?;
    // SAFETY: the range is mapped; two descriptions follow the pointer.
    let allowed = unsafe { call!(cuda, cuMemSetAccess(address, bytes, users.as_ptr(), users.len())) };
    allowed.inspect_err(|_| {
        let _ = free(cuda, address, bytes);
    })?;
    Ok(address)
}

/// Unmaps memory that [`allocate`] returned, which frees it, and gives its range back. The caller's: nothing uses it.
pub(super) fn free(cuda: &Cuda, address: Address, bytes: usize) -> Outcome<()> {
    // SAFETY: the range is that of one mapping, which nothing uses.
    let unmapped = unsafe { call!(cuda, cuMemUnmap(address, bytes)) };
    // SAFETY: as above. Where it is still mapped the driver refuses.
    let freed = unsafe { call!(cuda, cuMemAddressFree(address, bytes)) };
    unmapped.and(freed)
}
