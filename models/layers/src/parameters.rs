//! A model's parameters by name.

use std::collections::HashMap;

use burn_tensor::{Device, Tensor, TensorData};
use morphgl_registry::NamedTensor;

/// A model's parameters as tensors of a device, by name. All are matrices: `[n]` is `[1, n]`, `[1, h, c]` is `[1, h * c]`.
#[derive(Debug)]
pub struct Parameters {
    tensors: HashMap<String, Tensor<2>>,
    device: Device,
}

impl Parameters {
    /// Copies the parameters to a device; on an autodiff device they require gradients.
    pub fn new<'a>(tensors: impl IntoIterator<Item = &'a NamedTensor>, device: &Device) -> Self {
        let autodiff = device.is_autodiff();
        let tensors = tensors.into_iter().map(|t| {
            let shape = match t.shape.as_slice() {
                [rows, cols] => [*rows, *cols],
                other => [1, other.iter().product()],
            };
            let tensor = Tensor::from_data(TensorData::new(t.values.clone(), shape), device);
            (t.name.clone(), if autodiff { tensor.require_grad() } else { tensor })
        });
        Self { tensors: tensors.collect(), device: device.clone() }
    }

    /// The tensor of this name.
    ///
    /// # Panics
    ///
    /// When the model has none.
    pub fn get(&self, name: &str) -> Tensor<2> {
        self.tensors.get(name).unwrap_or_else(|| panic!("the model has no parameter {name}")).clone()
    }

    pub(crate) fn device(&self) -> Device {
        self.device.clone()
    }
}
