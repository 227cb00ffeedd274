// Browsers load no worker from file://. There a hidden frame stands in for it, so that the search works without a server.
// mkdocs-material would fetch a script of this name from another host.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.scope = frame.contentWindow
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = this.scope.document.createElement("script")
          Object.assign(script, { src: source, onload: loaded, onerror: failed })
          this.scope.document.body.appendChild(script)
        })
      this.scope.importScripts = async (...sources) => {
        for (const source of sources) await load(new URL(source, url).href)
      }
      this.scope.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      this.ready = load(url)
    }
    async postMessage(data) {
      await this.ready
      this.scope.dispatchEvent(new MessageEvent("message", { data }))
    }
    terminate() {
      this.scope.frameElement.remove()
    }
  }
}
