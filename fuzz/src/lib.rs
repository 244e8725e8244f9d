//! What the fuzz targets share: tables made of arbitrary data, all questions that a table can be asked,
//! and a second decoder to check the answers by.

pub mod ask;
pub mod databases;
pub mod log;
pub mod model;
pub mod naive;
pub mod parts;
pub mod pieces;
pub mod recovery;
pub mod remote;
pub mod seeds;
pub mod source;
pub mod tables;
