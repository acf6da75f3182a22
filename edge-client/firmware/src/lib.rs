//! A microcontroller as a full member of the fleet. No heap.
//!
//! | part | does | unsafe |
//! |---|---|---|
//! | `node` | moves bytes between a UART and a `SerialDevice`, computes in between | no |
//! | `kernel` | matrix products of cores with an FPU: one file of assembler, audited | yes |
//! | `soft` | matrix products of cores without one | no |
//! | `board` | clock, UART and start of the boards that QEMU emulates (feature `emulated`) | yes |
//!
//! Real boards use `node`, a backend and their own HAL; see `stm32f407/` and `nrf52840/`.
#![no_std]
#![deny(unsafe_code)]

#[cfg(feature = "emulated")]
pub mod board;
#[cfg(target_abi = "eabihf")]
pub mod kernel;
pub mod node;
pub mod soft;

/// The fastest backend of this core, bit for bit equal to `Portable::fused()`.
#[cfg(target_abi = "eabihf")]
pub type Best = kernel::Fpu;
/// The fastest backend of this core, bit for bit equal to `Portable::plain()`.
#[cfg(not(target_abi = "eabihf"))]
pub type Best = soft::Soft;
