// Keeps a page of running work up to date: it is fetched again after a while, and what has changed
// of its parts takes the place of what is shown. Pauses grow while nothing changes; nothing is
// fetched while the page is hidden, nor once the work has ended. Without this script the page is as
// it was when it was loaded.

const FIRST_MS = 2000;
const LONGEST_MS = 30000;
const GROWTH = 1.5;

const ENDED = "It has ended: the page is up to date.";
const ENDED_IN_USE = "It has ended. The part that you are using follows once you leave it.";

const status = document.querySelector("[data-live]");
let pause = FIRST_MS;
let timer = null;
let isOver = false;
let isHeldUp = false;

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

// Returns whether something has changed, whether the work has ended, and whether what is shown is
// all of the page as it is now. It is not while a part is in use: that one follows later.
function take(page) {
    let changed = false;
    let whole = true;
    document.title = page.title;
    for (const part of document.querySelectorAll("[data-live-part]")) {
        const fresh = page.querySelector(`[data-live-part="${part.dataset.livePart}"]`);
        if (told(fresh) === told(part)) {
            continue;
        }
        if (isUsed(part)) {
            whole = false;
        } else {
            replace(part, fresh);
            changed = true;
        }
    }
    const now = page.querySelector("[data-live]");
    const words = now ? now.textContent : whole ? ENDED : ENDED_IN_USE;
    if (status.textContent !== words) {
        status.textContent = words;
        changed = true;
    }
    return { changed, whole, ended: !now };
}

// The page may have become another one: signed out, or what it showed is gone.
function isSame(page) {
    return [...document.querySelectorAll("[data-live-part]")].every((part) =>
        page.querySelector(`[data-live-part="${part.dataset.livePart}"]`),
    );
}

function stop(words) {
    isOver = true;
    status.textContent = words;
}

async function look() {
    timer = null;
    try {
        const answer = await fetch(location.href, { headers: { "X-Live": "1" } });
        const text = await answer.text();
        const page = new DOMParser().parseFromString(text, "text/html");
        if (!answer.ok || answer.redirected || !isSame(page)) {
            stop("This page refreshes no more. Load it again.");
            return;
        }
        const { changed, whole, ended } = take(page);
        isOver = ended && whole;
        isHeldUp = !whole;
        if (isOver) {
            return;
        }
        pause = changed ? FIRST_MS : Math.min(pause * GROWTH, LONGEST_MS);
    } catch {
        pause = Math.min(pause * GROWTH, LONGEST_MS);
    }
    wait();
}

function wait() {
    if (!document.hidden && !isOver && timer === null) {
        timer = setTimeout(look, pause);
    }
}

function pauseAnew() {
    clearTimeout(timer);
    timer = null;
    pause = FIRST_MS;
    wait();
}

if (status) {
    document.addEventListener("visibilitychange", pauseAnew);
    document.addEventListener("focusout", () => isHeldUp && pauseAnew());
    wait();
}
