// Shows the sources of one line of a summary beside its text. Without this script every line is a
// link to its entry in the list of all sources, which then stands below the text.

const panel = document.getElementById("sources");
const links = panel ? [...panel.querySelectorAll("a.source-line")] : [];
const items = panel ? [...panel.querySelectorAll(".source-item")] : [];

function choose(number, { remember = true } = {}) {
    if (!links.some((link) => link.dataset.line === number)) {
        return;
    }
    for (const link of links) {
        if (link.dataset.line === number) {
            link.setAttribute("aria-current", "true");
        } else {
            link.removeAttribute("aria-current");
        }
    }
    for (const item of items) {
        item.hidden = item.id !== `line-${number}`;
    }
    if (remember) {
        history.replaceState(null, "", `#line-${number}`);
    }
}

function asked() {
    return /^#line-(\d+)$/.exec(location.hash)?.[1];
}

if (links.length) {
    panel.classList.add("is-live");
    panel.querySelector(".sources-list").setAttribute("aria-live", "polite");
    panel.addEventListener("click", (event) => {
        const link = event.target.closest("a.source-line");
        if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
            event.preventDefault();
            link.focus();
            choose(link.dataset.line);
        }
    });
    panel.addEventListener("keydown", (event) => {
        const at = links.indexOf(document.activeElement);
        const next = links[at + { ArrowDown: 1, ArrowUp: -1 }[event.key]];
        if (at >= 0 && next) {
            event.preventDefault();
            next.focus();
            choose(next.dataset.line);
        }
    });
    window.addEventListener("hashchange", () => asked() && choose(asked(), { remember: false }));
    choose(asked() ?? links[0].dataset.line, { remember: false });
    if (asked()) {
        panel.querySelector("[aria-current]").scrollIntoView({ block: "center" });
    }
}
