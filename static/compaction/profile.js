// Asks the server, while a profile is edited, what is wrong with it and what saving would come to.
// There is no rule in here: sentences, and what an empty field means, are the server's. Without this
// script the form says the same after "Save".

const WAIT_MS = 300;

const outcome = document.getElementById("profile-outcome");
const said = document.getElementById("profile-said");
const form = outcome?.closest("form");
let timer = 0;
let asking = null;

function later() {
    window.clearTimeout(timer);
    asking?.abort();
    timer = window.setTimeout(ask, WAIT_MS);
}

async function ask() {
    const mine = new AbortController();
    asking = mine;
    try {
        const response = await fetch(outcome.dataset.validateUrl, {
            method: "POST",
            body: new FormData(form),
            headers: { Accept: "application/json" },
            signal: mine.signal,
        });
        if (!response.ok || response.redirected) {
            throw new Error(String(response.status));
        }
        show(await response.json());
    } catch (error) {
        if (!mine.signal.aborted) {
            said.textContent =
                "The values could not be checked just now; they are checked when you save.";
        }
    }
}

function show(answer) {
    for (const [name, words] of Object.entries(answer.inherited)) {
        relabel(form.elements.namedItem(name), words);
    }
    for (const field of form.elements) {
        if (field.id.startsWith("id_") && field.type !== "hidden") {
            tell(field, answer.errors[field.name] ?? []);
        }
    }
    const wasOpen = outcome.querySelector("details")?.open ?? false;
    outcome.innerHTML = answer.outcome; // a template of the server, everything in it escaped
    const details = outcome.querySelector("details");
    if (details) {
        details.open = wasOpen;
    }
    const wrong = Object.values(answer.errors).flat();
    said.textContent = [answer.said, ...wrong].join(" ");
    for (const note of form.querySelectorAll(".errornote, .errornote ~ .errorlist.nonfield")) {
        note.remove();
    }
}

function relabel(field, words) {
    if (field instanceof HTMLSelectElement) {
        field.options[0].textContent = words;
    } else if (field) {
        field.placeholder = words;
    }
}

function tell(field, sentences) {
    const row = field.closest(".form-row");
    const id = `${field.id}_error`;
    row?.querySelector(".errorlist")?.remove();
    row?.classList.toggle("errors", sentences.length > 0);
    describe(field, id, sentences.length > 0);
    if (!row || !sentences.length) {
        field.removeAttribute("aria-invalid");
        return;
    }
    field.setAttribute("aria-invalid", "true");
    const list = document.createElement("ul");
    list.className = "errorlist";
    list.id = id;
    for (const sentence of sentences) {
        list.append(Object.assign(document.createElement("li"), { textContent: sentence }));
    }
    row.prepend(list);
}

function describe(field, id, isWrong) {
    const ids = (field.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean);
    const others = ids.filter((each) => each !== id);
    const all = isWrong ? [...others, id] : others;
    if (all.length) {
        field.setAttribute("aria-describedby", all.join(" "));
    } else {
        field.removeAttribute("aria-describedby");
    }
}

if (form) {
    form.addEventListener("input", later);
    form.addEventListener("change", later);
}
