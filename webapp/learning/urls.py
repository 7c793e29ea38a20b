"""URLs of the training pages."""

from django.urls import path

from webapp.learning import views

app_name = "learning"

urlpatterns = [
    path("learning/", views.trainings, name="list"),
    path("learning/<path:training>/figures.json", views.figures, name="figures"),
    path("learning/<path:training>/rollouts/<int:step>/<int:rollout>/", views.rollout, name="rollout"),
    path("learning/<path:training>/", views.training, name="training"),
]
