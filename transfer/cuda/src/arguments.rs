//! Kernel arguments.

use bytemuck::Pod;

use crate::driver::Address;
use crate::memory::{Buffer, Pinned, Users};
use crate::{Mapped, ShardedBuffer};

/// A kernel argument: a number by value, memory by address.
#[derive(Debug, Clone, Copy)]
pub struct Argument<'a> {
    pub(crate) value: [u8; 8],
    /// The users of the memory, to be marked by the launch.
    pub(crate) users: Option<&'a Users>,
}

impl<'a> Argument<'a> {
    /// A null pointer, for memory that the kernel does not access.
    pub const NULL: Argument<'static> = Argument { value: [0; 8], users: None };

    pub(crate) fn pointer(address: Address, users: &'a Users) -> Self {
        Self { value: address.to_ne_bytes(), users: Some(users) }
    }
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

macro_rules! memory {
    ($($memory:ident),*) => {$(
        impl<'a, T: Pod> From<&'a $memory<T>> for Argument<'a> {
            fn from(memory: &'a $memory<T>) -> Self {
                Self::pointer(memory.address(), memory.users())
            }
        }
    )*};
}
// The address of a sharded buffer is that of an array of its parts' addresses.
memory!(Buffer, Pinned, Mapped, ShardedBuffer);

impl<'a, T: Pod> From<&'a mut Buffer<T>> for Argument<'a> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        Self::from(&*buffer)
    }
}

impl<'a, A> From<Option<A>> for Argument<'a>
where
    Argument<'a>: From<A>,
{
    fn from(argument: Option<A>) -> Self {
        argument.map_or(Argument::NULL, Argument::from)
    }
}
