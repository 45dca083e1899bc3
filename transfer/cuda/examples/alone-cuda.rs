//! Lists the CUDA devices, and copies an array to each and back. Run: `cargo run -p morphgl-cuda --example alone-cuda`,
//! on a machine without a device with `--features emulate`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_cuda::{Buffer, Device, Pinned, Stream};
use morphgl_registry::{Machine, Result};

fn main() -> Result<()> {
    let machine = Machine::probe();
    if let Err(unavailable) = morphgl_cuda::probe(&machine) {
        println!("{}", unavailable.reason);
        return Ok(());
    }
    for accelerator in morphgl_cuda::accelerators(&machine) {
        let device = Device::open(&accelerator.place, &"Transferring_PCIe_Dma".parse()?)?;
        println!("{device:?}: {:?}, {} bytes free", device.properties()?, device.free_bytes()?);

        let stream = Stream::new(&device, false)?;
        let here = Pinned::of(&device, &[1u32, 2, 3])?;
        let (mut there, mut back) = (Buffer::new(&stream, 3)?, Pinned::new(&device, 3)?);
        let start = stream.record(true)?;
        stream.copy(&here, 0..3, &mut there, 0)?;
        stream.copy(&there, 0..3, &mut back, 0)?;
        let end = stream.record(true)?;
        end.synchronize()?;
        println!("{:?} copied to the device and back in {:?}", &back[..], end.elapsed(&start)?);
    }
    Ok(())
}
