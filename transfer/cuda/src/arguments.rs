//! What a kernel is launched with.

use bytemuck::Pod;

use crate::driver::Address;
use crate::memory::Users;
use crate::{Buffer, Mapped, Pinned, Spread};

/// Blocks, threads and shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks, by x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block, by x, y and z: at most 1,024 in all.
    pub block: [u32; 3],
    /// Bytes of `DYNAMIC_SHARED` memory a block.
    pub shared: usize,
}

impl Shape {
    /// Blocks in one row, of threads in one row; at least one block.
    pub fn linear(blocks: usize, threads: u32) -> Self {
        let blocks = u32::try_from(blocks.max(1)).expect("a device takes 2^31 - 1 blocks");
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0 }
    }

    /// As many blocks of `threads` threads as it takes for one thread an element.
    pub fn covering(elements: usize, threads: u32) -> Self {
        Self::linear(elements.div_ceil(threads as usize), threads)
    }

    /// The same with `bytes` of shared memory a block.
    pub fn with_shared(mut self, bytes: usize) -> Self {
        self.shared = bytes;
        self
    }
}

/// One argument of a kernel: a number by its value, memory by its address.
#[derive(Debug)]
pub struct Argument<'a> {
    pub(crate) value: [u8; 8],
    /// Whose work uses the memory.
    pub(crate) users: Option<Users<'a>>,
}

impl Argument<'_> {
    /// A null pointer, for memory that the kernel is not to touch.
    pub const NULL: Argument<'static> = Argument { value: [0; 8], users: None };
}

pub(crate) fn address<'a>(address: Address, users: Option<Users<'a>>) -> Argument<'a> {
    Argument { value: address.to_ne_bytes(), users }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl From<$number> for Argument<'_> {
            fn from(number: $number) -> Self {
                let mut value = [0; 8];
                let bytes = number.to_ne_bytes();
                value[..bytes.len()].copy_from_slice(&bytes);
                Self { value, users: None }
            }
        }
    )*};
}
numbers!(u32, i32, u64, i64, f32);

impl<'a, T: Pod> From<&'a Buffer<T>> for Argument<'a> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        address(buffer.address(), Some(buffer.users()))
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for Argument<'a> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        Self::from(&*buffer)
    }
}

impl<'a, T: Pod> From<&'a Pinned<T>> for Argument<'a> {
    fn from(pinned: &'a Pinned<T>) -> Self {
        address(pinned.address(), Some(pinned.users()))
    }
}

impl<'a, T: Pod> From<&'a Mapped<T>> for Argument<'a> {
    fn from(mapped: &'a Mapped<T>) -> Self {
        address(mapped.address(), Some(mapped.users()))
    }
}

/// An array of the parts' addresses.
impl<'a, T: Pod> From<&'a Spread<T>> for Argument<'a> {
    fn from(spread: &'a Spread<T>) -> Self {
        address(spread.address(), Some(spread.users()))
    }
}

impl<'a, A> From<Option<A>> for Argument<'a>
where
    Argument<'a>: From<A>,
{
    fn from(argument: Option<A>) -> Self {
        argument.map_or(Argument { value: [0; 8], users: None }, Argument::from)
    }
}
