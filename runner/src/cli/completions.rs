//! `morphgl completions`: the shell's script that completes commands and options.

use clap::{CommandFactory, Parser};
use clap_complete::{Shell, generate};
use serde_json::json;

use super::{Cli, Outcome};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl completions bash > ~/.local/share/bash-completion/completions/morphgl
  morphgl completions zsh > ~/.zfunc/_morphgl
  morphgl completions fish > ~/.config/fish/completions/morphgl.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "morphgl", &mut script);
    let script = String::from_utf8(script)?;
    let json = json!({ "shell": args.shell.to_string(), "script": script });
    Ok(Outcome::new(script, json))
}
