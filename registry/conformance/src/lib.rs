#![doc = include_str!("../README.md")]

pub mod batching;
pub mod training;
pub mod transferring;
