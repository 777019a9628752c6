//! The command lines of `cuda-mem completions` and `cuda-mem man`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

const COMPLETIONS_AFTER: &str = "\
Examples:
  cuda-mem completions bash > ~/.local/share/bash-completion/completions/cuda-mem
  cuda-mem completions zsh > ~/.zfunc/_cuda-mem        (with fpath+=~/.zfunc before compinit in ~/.zshrc)
  cuda-mem completions fish > ~/.config/fish/completions/cuda-mem.fish

`scripts/install` and the Debian packages install them.";

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_AFTER)]
pub(crate) struct CompletionsOptions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

const MAN_AFTER: &str = "\
Example:
  cuda-mem man ~/.local/share/man/man1 && man cuda-mem

`scripts/install` and the Debian packages install them.

Exit status: 0 if all pages were written, 1 if not, 2 for a wrong command line.";

#[derive(Debug, Args)]
#[command(after_help = MAN_AFTER)]
pub(crate) struct ManOptions {
    /// The folder, which is made if it is missing
    pub(crate) folder: PathBuf,
}
