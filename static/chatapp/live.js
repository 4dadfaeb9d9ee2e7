// Keeps a page of running work up to date: it is fetched again after a while, and what has changed
// of its parts takes the place of what is shown. Pauses grow while nothing changes; nothing is
// fetched while the page is hidden, nor once the work has ended. Without this script the page is as
// it was when it was loaded.

const FIRST_MS = 2000;
const LONGEST_MS = 30000;
const GROWTH = 1.5;

const status = document.querySelector("[data-live]");
let pause = FIRST_MS;
let timer = null;

// Tokens of forms are another in every answer; they say nothing new.
function told(part) {
    return part.innerHTML.replace(/name="csrfmiddlewaretoken" value="[^"]*"/g, "");
}

function isUsed(part) {
    const inside = part.contains(document.activeElement);
    const chosen = document.getSelection();
    return inside || (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
}

// What somebody opened stays open.
function replace(part, fresh) {
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    part.replaceChildren(...document.importNode(fresh, true).childNodes);
    [...part.querySelectorAll("details")].forEach((one, index) => {
        one.open = open[index] ?? one.open;
    });
}

function take(page) {
    let changed = false;
    document.title = page.title;
    for (const part of document.querySelectorAll("[data-live-part]")) {
        const fresh = page.querySelector(`[data-live-part="${part.dataset.livePart}"]`);
        if (fresh && told(fresh) !== told(part) && !isUsed(part)) {
            replace(part, fresh);
            changed = true;
        }
    }
    const now = page.querySelector("[data-live]");
    const words = now ? now.textContent : "It has ended: the page is up to date.";
    if (status.textContent !== words) {
        status.textContent = words;
        changed = true;
    }
    return { changed, ended: !now };
}

async function look() {
    timer = null;
    try {
        const answer = await fetch(location.href, { headers: { "X-Live": "1" } });
        if (!answer.ok || answer.redirected) {
            status.textContent = "This page refreshes no more. Load it again.";
            return;
        }
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const { changed, ended } = take(page);
        if (ended) {
            return;
        }
        pause = changed ? FIRST_MS : Math.min(pause * GROWTH, LONGEST_MS);
    } catch {
        pause = Math.min(pause * GROWTH, LONGEST_MS);
    }
    wait();
}

function wait() {
    if (!document.hidden && timer === null) {
        timer = setTimeout(look, pause);
    }
}

if (status) {
    document.addEventListener("visibilitychange", () => {
        if (document.hidden) {
            clearTimeout(timer);
            timer = null;
        } else if (!status.textContent.startsWith("It has ended")) {
            pause = FIRST_MS;
            wait();
        }
    });
    wait();
}
