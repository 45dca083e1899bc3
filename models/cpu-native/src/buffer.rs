//! Memory that is allocated once and reused by every mini-batch.

use morphgl_platform::Pages;

/// Floats in huge pages where the system has them, with any content. The capacity only grows.
///
/// Not from the allocator: some allocators keep a huge page for each thread and size.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Pages);

impl Buffer {
    pub(crate) const fn new() -> Self {
        Self(Pages::new())
    }

    /// The first `len` floats; where the buffer grows, the content is lost.
    ///
    /// # Panics
    ///
    /// When the system has no memory left.
    pub(crate) fn get(&mut self, len: usize) -> &mut [f32] {
        if len > self.len() {
            self.0.resize(len.saturating_mul(4));
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..len]
    }

    /// Largest length so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len() / 4
    }

    /// The first `len` floats as they were written.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter.
    pub(crate) fn read(&self, len: usize) -> &[f32] {
        &bytemuck::cast_slice(&self.0)[..len]
    }
}

/// Sets a vector's length, with an eighth of spare capacity where it grows; the content is to be overwritten.
pub(crate) fn resize<T: Copy + Default>(values: &mut Vec<T>, len: usize) {
    if len > values.capacity() {
        values.clear();
        values.reserve_exact(len + len / 8);
    }
    values.resize(len, T::default());
}

#[cfg(test)]
mod tests;
