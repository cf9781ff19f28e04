//! The files of the page, which are inside the program.

/// A file that everyone may read: it contains no data.
pub(super) struct PageFile {
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const fn script(path: &'static str, text: &'static str) -> PageFile {
    PageFile {
        path,
        kind: "text/javascript; charset=utf-8",
        text,
    }
}

/// All files of the page.
pub(super) const PAGE_FILES: [PageFile; 11] = [
    PageFile {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: include_str!("assets/index.html"),
    },
    PageFile {
        path: "/style.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("assets/style.css"),
    },
    PageFile {
        path: "/icon.svg",
        kind: "image/svg+xml",
        text: include_str!("assets/icon.svg"),
    },
    PageFile {
        path: "/api/v1/openapi.json",
        kind: "application/json",
        text: include_str!("assets/openapi.json"),
    },
    script("/app.js", include_str!("assets/app.js")),
    script("/dom.js", include_str!("assets/dom.js")),
    script("/stream.js", include_str!("assets/stream.js")),
    script("/nodes.js", include_str!("assets/nodes.js")),
    script("/locks.js", include_str!("assets/locks.js")),
    script("/details.js", include_str!("assets/details.js")),
    script("/timeline.js", include_str!("assets/timeline.js")),
];
