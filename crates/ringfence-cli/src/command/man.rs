//! `ringfence man`: prints a manual page, or writes all of them into a folder.

use std::fs;

use serde_json::json;

use crate::args::ManArgs;
use crate::exit::Exit;
use crate::manual::{self, ManualPage};
use crate::report::{CliFailure, Report, one_line, print};

pub(super) fn man(args: &ManArgs, report: Report) -> Result<Exit, CliFailure> {
    let pages = manual::pages()?;
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
