// Browsers start no worker from file://. There, the site's search runs in a hidden frame instead. mkdocs-material's offline
// plugin would load a script from another host for this, unless one of this name is in `extra.polyfills`.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = frame.contentDocument.createElement("script")
      script.src = url
      script.onload = () => {
        for (const data of this.waiting.splice(0)) this.send(data)
        this.postMessage = this.send
      }
      frame.contentDocument.head.append(script)
    }
    postMessage(data) {
      this.waiting.push(data)
    }
    send(data) {
      this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }))
    }
  }
}
