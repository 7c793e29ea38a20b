// @ts-check
// Loads the existing trace over HTTP in stretches, several at a time, and applies them in order. Later events arrive over the live connection.
const AT_ONCE = 3;

// `take(stretch)` applies a stretch and returns false if it leaves a gap. Resolves to whether everything was loaded.
export async function loadTrace({ url, head, length, take }) {
  const starts = Array.from({ length: Math.ceil(head / length) }, (_, index) => index * length);
  const asked = [];
  const ask = (index) => {
    if (index >= starts.length) return;
    asked[index] = fetch(`${url}?since=${starts[index]}`, { credentials: "same-origin", headers: { accept: "application/json" } }).then((answer) => {
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      return answer.json();
    });
    asked[index].catch(() => {}); // reported when its turn comes
  };
  for (let index = 0; index < AT_ONCE; index += 1) ask(index);
  try {
    for (let index = 0; index < starts.length; index += 1) {
      const stretch = await asked[index];
      ask(index + AT_ONCE);
      if (!take(stretch)) return false;
    }
  } catch {
    return false; // the live connection continues from here
  }
  return true;
}
