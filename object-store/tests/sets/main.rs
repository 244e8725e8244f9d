//! Sets of tables: against a map in memory, with publishers that race, lose replies and die, and with manifests of bad will.

mod common;
mod hostile;
mod prune;
mod publish;
mod read;
mod requests;
mod watched;
