/* A page that is opened from disk may start no worker, and the site's search is one: its script runs in a hidden frame
   instead. The name of this file tells the theme that it need not fetch another one for that. */
if (location.protocol === "file:") {
  const loaded = (element) => new Promise((resolve) => element.addEventListener("load", resolve, { once: true }));

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      this.ready = loaded(frame).then(() => {
        this.scope = frame.contentWindow;
        this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        this.scope.importScripts = async (...urls) => {
          for (const each of urls) await this.run(each);
        };
        return this.run(url);
      });
      document.body.append(frame);
    }

    run(url) {
      const script = this.scope.document.createElement("script");
      script.src = url;
      this.scope.document.body.append(script);
      return loaded(script);
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
