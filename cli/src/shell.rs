//! `leveltable completions` and `leveltable man`: completions and manual pages, generated from the definition of the
//! command line.

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::Answer;
use crate::Cli;
use crate::failure::Failure;
use crate::output::print;

/// Print completions for a shell.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/completions.txt").trim_end())]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print the manual page of the tool or of one of its commands.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/man.txt").trim_end())]
pub(crate) struct ManArgs {
    /// One of the tool's commands
    command: Option<String>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Answer, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leveltable", &mut script);
    print(script)?;
    Ok(Answer::Yes)
}

pub(crate) fn man(args: &ManArgs) -> Result<Answer, Failure> {
    let mut cli = Cli::command();
    // Gives each command its full name.
    cli.build();
    let page = match &args.command {
        None => cli,
        Some(name) => cli.find_subcommand(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = cli.get_subcommands().map(|c| c.get_name()).collect();
            let names = names.join(", ");
            Failure::new(format!("no command {name:?}: the commands are {names}"))
        })?,
    };
    let title = page
        .get_display_name()
        .unwrap_or("leveltable")
        .to_uppercase();
    let source = concat!("leveltable ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(page).title(title).source(source);
    let mut rendered = Vec::new();
    man.render(&mut rendered).map_err(Failure::Output)?;
    print(rendered)?;
    Ok(Answer::Yes)
}
