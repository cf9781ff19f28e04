//! `ringfence man`, and the manual pages: one for ringfence, one for each command.
//!
//! Synopsis and options come from the definition of the arguments. The other sections are the text
//! that `-h` prints below the options, sorted by its headings.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde_json::json;

use crate::args::{Cli, ManArgs};
use crate::exit::Exit;
use crate::report::{CliFailure, Report, one_line, print};

/// A page and the name of its file.
struct ManualPage {
    /// `ringfence-run.1`
    file: String,
    text: String,
}

/// Prints a page, or writes all of them into a folder.
pub(crate) fn man(args: &ManArgs, report: Report) -> Result<Exit, CliFailure> {
    let pages = pages()?;
    if let Some(folder) = &args.dir {
        fs::create_dir_all(folder)?;
        for page in &pages {
            fs::write(folder.join(&page.file), &page.text)?;
        }
        let files: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
        let text = format!(
            "wrote {} pages to {}",
            files.len(),
            one_line(&folder.display().to_string())
        );
        report.result(&text, &json!({ "files": files }))?;
        return Ok(Exit::Success);
    }
    let file = match &args.command {
        Some(command) => format!("ringfence-{command}.1"),
        None => "ringfence.1".to_owned(),
    };
    let page = pages.iter().find(|page: &&ManualPage| page.file == file);
    let page = page.ok_or_else(|| {
        let command = args.command.as_deref().unwrap_or_default();
        CliFailure::usage(format!("there is no command `{}`", one_line(command)))
    })?;
    print(page.text.trim_end())?;
    Ok(Exit::Success)
}

/// All pages; that of ringfence itself comes first.
fn pages() -> io::Result<Vec<ManualPage>> {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let commands: Vec<&Command> = cli.get_subcommands().collect();
    let names: Vec<String> = std::iter::once(&cli)
        .chain(commands.iter().copied())
        .map(page_name)
        .collect();
    let mut pages = vec![page(&cli, &names)?];
    for command in commands {
        pages.push(page(command, &names)?);
    }
    Ok(pages)
}

/// The page of `command`, which is also the name that other pages cite.
fn page_name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command, names: &[String]) -> io::Result<ManualPage> {
    let name = page_name(command);
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(concat!("ringfence ", env!("CARGO_PKG_VERSION")))
        .manual("ringfence");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    writeln!(page, ".SH SYNOPSIS\n{}", escaped(usage))?;
    man.render_description_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    let mut text = String::from_utf8_lossy(&page).into_owned();
    text += &Sections::of(command).roff();
    let others: Vec<String> = names
        .iter()
        .filter(|other| **other != name)
        .map(|other| format!(".BR {} (1)", escaped(other)))
        .collect();
    let _ = writeln!(text, ".SH \"SEE ALSO\"\n{}", others.join(",\n"));
    let file = format!("{name}.1");
    let text = text.chars().map(ascii).collect();
    Ok(ManualPage { file, text })
}

/// The sections below the options.
#[derive(Default)]
struct Sections {
    notes: Vec<String>,
    exit: Vec<String>,
    files: Vec<String>,
    examples: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Sections {
    fn of(command: &Command) -> Self {
        let mut sections = Self::default();
        let help = command.get_after_help().map(ToString::to_string);
        for paragraph in help.unwrap_or_default().split("\n\n") {
            let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
            match first {
                "" => {}
                "Examples:" | "Example:" => sections.examples.push(rest.to_owned()),
                "Files:" => sections.files.push(rest.to_owned()),
                "Exit codes:" => sections.exit.push(rest.to_owned()),
                _ => match paragraph
                    .strip_prefix("Exit code: ")
                    .or_else(|| paragraph.strip_prefix("Exit codes: "))
                {
                    Some(codes) => sections.exit.push(codes.to_owned()),
                    None => sections.notes.push(paragraph.to_owned()),
                },
            }
        }
        if sections.exit.is_empty() {
            sections.exit.push(USUAL_EXIT.to_owned());
        }
        if sections.examples.is_empty() {
            let example = EXAMPLES
                .iter()
                .find(|(name, _)| *name == command.get_name());
            let example = example.map(|(_, text)| format!("  {text}"));
            sections.examples.extend(example);
        }
        sections.files.push(USUAL_FILES.to_owned());
        sections.environment = USUAL_ENVIRONMENT.to_vec();
        if ["extend", "release"].contains(&command.get_name()) {
            sections.environment.push((
                "RINGFENCE_TOKEN, RINGFENCE_NAME",
                "The token of the lock RINGFENCE_NAME, as `run` and `elect` set them for their \
                 command.",
            ));
        }
        sections
    }

    fn roff(&self) -> String {
        let mut text = String::new();
        let mut section = |title: &str, paragraphs: &[String]| {
            if paragraphs.is_empty() {
                return;
            }
            let _ = writeln!(text, ".SH \"{title}\"");
            for one in paragraphs {
                text += &paragraph(one);
            }
        };
        section("NOTES", &self.notes);
        section("EXIT STATUS", &self.exit);
        section("FILES", &self.files);
        section("EXAMPLES", &self.examples);
        text += ".SH ENVIRONMENT\n";
        for (name, what) in &self.environment {
            let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{}", escaped(name), escaped(what));
        }
        text
    }
}

/// Running text, or lines that stay as they are if one of them is indented.
fn paragraph(text: &str) -> String {
    let lines = text.lines().map(|line| match escaped(line) {
        line if line.starts_with(['.', '\'']) => format!("\\&{line}"),
        line => line,
    });
    let lines: Vec<String> = lines.collect();
    let lines = lines.join("\n");
    match text.lines().any(|line| line.starts_with(' ')) {
        true => format!(".PP\n.nf\n{lines}\n.fi\n"),
        false => format!(".PP\n{lines}\n"),
    }
}

/// Other characters than ASCII, as every formatter understands them.
fn ascii(c: char) -> String {
    match c.is_ascii() {
        true => c.to_string(),
        false => format!("\\[u{:04X}]", u32::from(c)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

const USUAL_EXIT: &str = "\
0 success, 64 wrong usage or settings, 69 too few nodes answer or may vote, 70 an internal error, 79 \
the lock was lost or is not ours any more, 128+n signal n ended ringfence.";

const USUAL_FILES: &str = "  $XDG_CONFIG_HOME/ringfence/config.toml  settings of the user
                                          (~/.config if it is unset)
  /etc/ringfence/config.toml              settings of the system
  $XDG_STATE_HOME/ringfence/locks.db      locks, if no nodes are named
                                          (~/.local/state if it is unset)";

const USUAL_ENVIRONMENT: &[(&str, &str)] = &[
    ("RINGFENCE_NODES", "The nodes, as --nodes."),
    (
        "RINGFENCE_NODES_FILE",
        "A file with the nodes, as --nodes-file.",
    ),
    (
        "RINGFENCE_PASSWORD_FILE",
        "A file with the password, as --password-file.",
    ),
    (
        "RINGFENCE_CONFIG",
        "The only config file to read, as --config; empty: none.",
    ),
    (
        "NO_COLOR",
        "If it is set and not empty, no colours are used.",
    ),
];

/// Examples of commands whose `-h` has none.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "extend",
        "ringfence extend deploy --token \"$token\" --ttl 1m",
    ),
    ("release", "ringfence release deploy --token \"$token\""),
    (
        "init",
        "ringfence --nodes redis://a,redis://b,redis://c init",
    ),
    (
        "completions",
        "ringfence completions bash > ~/.local/share/bash-completion/completions/ringfence",
    ),
    ("man", "ringfence man run | man -l -"),
];
