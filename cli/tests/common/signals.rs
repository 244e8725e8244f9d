//! Starting the tool where it takes signals, and sending them.

use std::process::{Child, Command};

/// The tool with no signal ignored but `ignored`, since it leaves ignored what its parent ignores.
pub(crate) fn tool_with_signals(ignored: Option<&str>) -> Command {
    let mut tool = Command::new("env");
    tool.arg("--default-signal=INT,TERM,HUP");
    tool.args(ignored.map(|signal| format!("--ignore-signal={signal}")));
    tool.arg(env!("CARGO_BIN_EXE_leveltable"));
    tool
}

pub(crate) fn send_signal(signal: &str, child: &Child) {
    let id = child.id().to_string();
    let kill = Command::new("kill").args([signal, &id]).status();
    assert!(kill.unwrap().success());
}
